# Merges the species' summaries into the report, the heaviest species first.
#
# Reads  $TITLE, and per species $ADELIE, $CHINSTRAP and $GENTOO: "count,mean mass,median mass,mean flipper length"
# Writes $LONGSHORE_WORKSPACE/report.csv and report.md
set -eu
export LC_ALL=C

cd "$LONGSHORE_WORKSPACE"

{
    echo "species,count,mean_mass_g,median_mass_g,mean_flipper_mm"
    printf '%s\n' "Adelie,$ADELIE" "Chinstrap,$CHINSTRAP" "Gentoo,$GENTOO" | sort -t, -k3,3nr
} >report.csv.tmp

{
    echo "# $TITLE"
    echo
    echo "| Species | Birds | Mean mass (g) | Median mass (g) | Mean flipper (mm) |"
    echo "|---|---:|---:|---:|---:|"
    awk -F, 'NR > 1 { printf "| %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5 }' report.csv.tmp
    echo
    awk -F, 'NR > 1 { n += $2 } END { print n " birds were weighed." }' report.csv.tmp
} >report.md.tmp

mv report.csv.tmp report.csv
mv report.md.tmp report.md
cat report.md

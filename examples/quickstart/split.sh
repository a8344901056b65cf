# Takes the birds of one species out of the cleaned table.
#
# Usage: split.sh SPECIES
# Reads  $LONGSHORE_WORKSPACE/clean.csv
# Writes $LONGSHORE_WORKSPACE/SPECIES.csv
set -eu
export LC_ALL=C

species="$1"
table="$LONGSHORE_WORKSPACE/$species.csv"

awk -F, -v species="$species" 'NR == 1 || $1 == species' "$LONGSHORE_WORKSPACE/clean.csv" >"$table.tmp"
n_birds=$(($(wc -l <"$table.tmp") - 1))
if [ "$n_birds" -eq 0 ]; then
    echo "split: no $species in clean.csv" >&2
    exit 1
fi
mv "$table.tmp" "$table"

echo "$n_birds birds of species $species"

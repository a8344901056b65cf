# Summarises one species.
#
# Usage: summarise.sh SPECIES
# Reads  $LONGSHORE_WORKSPACE/SPECIES.csv
# Writes {"count", "mean_mass_g", "median_mass_g", "mean_flipper_mm"} as the task's result
set -eu
export LC_ALL=C

species="$1"
table="$LONGSHORE_WORKSPACE/$species.csv"

# The quickstart shows a retry: where this is set, the first try fails, the way a busy network would make it fail.
if [ "${FAIL_FIRST_TRY:-no}" = yes ] && [ "$LONGSHORE_TRY_NUMBER" -eq 1 ]; then
    echo "summarise: no answer from the weighing station (simulated; the next try will do better)" >&2
    exit 75
fi

median=$(tail -n +2 "$table" | cut -d, -f5 | sort -n | awk '
    { mass[NR] = $1 }
    END { print NR % 2 ? mass[(NR + 1) / 2] : (mass[NR / 2] + mass[NR / 2 + 1]) / 2 }
')

awk -F, -v median="$median" '
    NR > 1 { n++; mass += $5; flipper += $4 }
    END {
        printf "{\"count\": %d, \"mean_mass_g\": %.1f, \"median_mass_g\": %s, \"mean_flipper_mm\": %.1f}\n",
            n, mass / n, median, flipper / n
    }
' "$table" >"$LONGSHORE_RETURN"

echo "$species: $(cat "$LONGSHORE_RETURN")"

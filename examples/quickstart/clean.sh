# Cleans the raw measurements: picks six columns, shortens the species' names and drops the birds that were not weighed.
# Input that is not what it should be ends the task with a message and exit code 1, never with a wrong report.
#
# Reads  $LONGSHORE_FILES/penguins-raw.csv
# Writes $LONGSHORE_WORKSPACE/clean.csv, and {"rows", "kept", "dropped"} as the task's result
set -eu
export LC_ALL=C

raw="$LONGSHORE_FILES/penguins-raw.csv"
clean="$LONGSHORE_WORKSPACE/clean.csv"

# A try may find what an earlier one left behind: write aside, then rename.
awk -v result="$LONGSHORE_RETURN" '
    function fail(text) {
        print "clean: penguins-raw.csv " text | "cat 1>&2"
        failed = 1
        exit 1
    }

    # Splits a CSV line into field[1..n]. A quoted field may hold commas, and "" stands for a quote.
    function split_csv(line,    n, i, c, is_quoted) {
        n = 1
        field[1] = ""
        for (i = 1; i <= length(line); i++) {
            c = substr(line, i, 1)
            if (c == "\"" && is_quoted && substr(line, i + 1, 1) == "\"") {
                field[n] = field[n] c
                i++
            } else if (c == "\"") {
                is_quoted = !is_quoted
            } else if (c == "," && !is_quoted) {
                field[++n] = ""
            } else {
                field[n] = field[n] c
            }
        }
        if (is_quoted) fail("line " NR ": a quoted field does not end")
        return n
    }

    function column(name) {
        if (!(name in column_of)) fail("has no column \"" name "\"; its columns are: " $0)
        return column_of[name]
    }

    # A measurement: a number, or NA where nothing was measured.
    function measured(name,    value) {
        value = field[column_of[name]]
        if (value != "NA" && value !~ /^[0-9]+(\.[0-9]+)?$/)
            fail("line " NR ": \"" name "\" is \"" value "\", expected a number or NA")
        return value
    }

    { sub(/\r$/, "") }

    NR == 1 {
        n_columns = split_csv($0)
        for (i = 1; i <= n_columns; i++) column_of[field[i]] = i
        column("Species"); column("Island"); column("Date Egg"); column("Sex")
        column("Flipper Length (mm)"); column("Body Mass (g)")
        print "species,island,year,flipper_mm,mass_g,sex"
        next
    }

    {
        n = split_csv($0)
        if (n != n_columns) fail("line " NR ": has " n " fields, expected " n_columns)
        n_rows++
        mass = measured("Body Mass (g)")
        flipper = measured("Flipper Length (mm)")
        if (mass == "NA" || flipper == "NA") next

        split(field[column_of["Species"]], words, " ")
        print tolower(words[1]) "," field[column_of["Island"]] "," \
            substr(field[column_of["Date Egg"]], 1, 4) "," flipper "," mass "," \
            tolower(field[column_of["Sex"]])
        n_kept++
    }

    END {
        if (failed) exit 1
        if (n_rows == 0) fail("has no rows")
        printf "{\"rows\": %d, \"kept\": %d, \"dropped\": %d}\n", n_rows, n_kept, n_rows - n_kept > result
    }
' "$raw" >"$clean.tmp"
mv "$clean.tmp" "$clean"

echo "$(($(wc -l <"$clean") - 1)) birds kept"

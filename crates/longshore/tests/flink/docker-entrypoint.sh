#!/bin/sh
# In place of the entry script of Flink's image.
export PATH="/opt/flink/bin:$PATH"
exec "$@"

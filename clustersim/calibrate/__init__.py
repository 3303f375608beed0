"""From measurement files to profiles: records, fits, logs of other tools. Nothing here needs torch."""

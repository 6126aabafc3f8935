# Compares the loss curves of several files, the last column of each comma-separated line; a header does not count. The last line is
# the largest relative difference of any two of them at one step. Fails above 1e-4, when the curves differ in length, and when a
# curve of at least 200 steps does not fall by 1 nat from its first step to its last.
function fail(line) { print "loss curves: " line; failed = 1 }
function magnitude(x) { return x < 0 ? -x : x }

FNR == 1 { curves++; steps = 0; file[curves] = FILENAME }
{
  count = split($0, fields, /[ ,]+/)
  if (fields[count] !~ /^-?[0-9.]+([eE][-+]?[0-9]+)?$/) {
    if (FNR > 1) fail(FILENAME ":" FNR ": \"" fields[count] "\" is no loss")
    next
  }
  value[curves, ++steps] = fields[count] + 0
  length_of[curves] = steps
}
END {
  if (curves + 0 < 2) fail(sprintf("%d curves, expected at least 2", curves))
  for (c = 1; c <= curves; c++) {
    if (length_of[c] + 0 < 2 || length_of[c] != length_of[1]) {
      fail(sprintf("%s has %d steps, %s has %d; expected the same number, at least 2", file[c], length_of[c], file[1], length_of[1]))
    }
  }
  if (failed) exit 1
  for (c = 1; c <= curves; c++) {
    fallen = value[c, 1] - value[c, length_of[1]]
    if (length_of[1] >= 200 && fallen < 1) {
      fail(sprintf("%s falls by %.3f nats, expected at least 1", file[c], fallen))
    }
    for (b = 1; b < c; b++) {
      for (s = 1; s <= length_of[1]; s++) {
        difference = magnitude(value[b, s] - value[c, s])
        scale = magnitude(value[b, s]) < magnitude(value[c, s]) ? magnitude(value[b, s]) : magnitude(value[c, s])
        if (difference > 0 && scale > 0) difference /= scale
        if (difference > worst) worst = difference
      }
    }
  }
  if (worst > 1e-4) fail(sprintf("two of them differ by %.3g, expected at most 1e-4", worst))
  printf "loss-curve-difference: %.3g\n", worst
  exit failed
}

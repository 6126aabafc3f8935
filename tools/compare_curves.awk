# Largest relative difference between the curves of several files: the last column of each comma-separated line; a header
# does not count. Fails above 1e-4, and when the curves differ in length.
FNR == 1 { curves++; steps = 0 }
{
  count = split($0, fields, /[ ,]+/)
  if (fields[count] !~ /^-?[0-9.]+([eE][-+]?[0-9]+)?$/) next
  value[curves, ++steps] = fields[count] + 0
  length_of[curves] = steps
}
END {
  for (c = 1; c <= curves; c++) {
    if (length_of[c] + 0 < 2 || length_of[c] != length_of[1]) {
      printf "curve %d has %d steps, the first has %d; expected the same number, at least 2\n", c, length_of[c], length_of[1]
      exit 1
    }
    for (s = 1; s <= length_of[1]; s++) {
      a = value[1, s]; b = value[c, s]
      scale = a < 0 ? -a : a
      d = a - b; if (d < 0) d = -d
      if (d > 0 && d / (scale > 0 ? scale : 1) > worst) worst = d / (scale > 0 ? scale : 1)
    }
  }
  printf "loss-curve-difference: %.3g\n", worst
  exit worst > 1e-4
}

/**
 * How cost grows with size: the slope of log(cost) over log(size), by least squares.
 * 0: flat; 1: twice the size costs twice as much; below 0: it becomes cheaper.
 */
export function exponent(points) {
  const logs = points.map(([size, cost]) => [Math.log(size), Math.log(cost)])
  const mean = (at) => logs.reduce((sum, log) => sum + log[at], 0) / logs.length
  const [x, y] = [mean(0), mean(1)]
  const spread = logs.reduce((sum, log) => sum + (log[0] - x) ** 2, 0)
  if (!(spread > 0)) throw new Error('an exponent needs two sizes at least')
  return logs.reduce((sum, log) => sum + (log[0] - x) * (log[1] - y), 0) / spread
}

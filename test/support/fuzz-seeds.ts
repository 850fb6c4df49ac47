/** Two seeds that are always the same, and one that is new in each run; or the one of FUZZ_SEED, to repeat a failure. */
export function fuzzSeeds(): readonly number[] {
  const given = process.env.FUZZ_SEED
  return given === undefined ? [1, 2, Math.floor(Math.random() * 1e9)] : [Number(given)]
}

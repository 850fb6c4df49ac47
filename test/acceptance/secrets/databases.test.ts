import { expect, it } from 'vitest'
import { isOn } from '../../support/databases.js'
import { undocumentedIn } from '../../support/log-lines.js'
import { Evidence, Secrets } from './evidence.js'
import { Life } from './life.js'
import { PLACES } from './places.js'

for (const [name, placeOf, database] of PLACES) {
  it.runIf(isOn(database))(
    `nothing of an event gets out in its whole life: ${name}`,
    { timeout: 120_000 },
    async () => {
      const [secrets, evidence] = [new Secrets(), new Evidence()]
      await new Life(await placeOf(), secrets, evidence).live()
      expect(evidence.leaks(secrets)).toEqual([])
      expect(undocumentedIn(evidence.lines.filter((line) => !line.includes('what people do')))).toEqual([])
      expect(evidence.count('log')).toBeGreaterThan(50)
      expect(evidence.count('metric')).toBeGreaterThan(20)
      expect(evidence.count('constraint')).toBeGreaterThan(10)
    },
  )
}

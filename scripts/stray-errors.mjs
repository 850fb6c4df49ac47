// A reporter of vitest that writes down what was thrown outside of any test: the JSON report leaves it out.
import fs from 'node:fs'

export default class StrayErrors {
  onTestRunEnd(_modules, errors) {
    const texts = errors.map((error) =>
      [error.stack ?? `${error.name}: ${error.message}`, testOf(error)].join('\n  '),
    )
    if (texts.length > 0) fs.writeFileSync(process.env.STRAY_ERRORS, texts.join('\n  '))
  }
}

function testOf(error) {
  return `while ${error.VITEST_TEST_PATH ?? 'no file'} ran: ${error.VITEST_TEST_NAME ?? 'no test'}`
}

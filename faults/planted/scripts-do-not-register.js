/** Manual consumers claim events without a registration of their handlers. */
export default {
  name: 'scripts do not register',
  invariant: 'I1',
  store: 'sqlite',
  scenario: 'manual-consumers',
  seed: 1,
  patches: [
    {
      file: 'maintenance/registration.js',
      text: 'if (now < this.#manualRenewalAt || !hasHandlers)',
      replacement: 'if (now < Number.POSITIVE_INFINITY)',
    },
    {
      file: 'maintenance/registration.js',
      text: 'if (done === 0 && failed === 0 && dead === 0)',
      replacement: 'if (done > -1)',
    },
  ],
}

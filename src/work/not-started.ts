/** Rejection of a handler call that never began, for example because its event type was paused. Not a failure. */
export class NotStarted extends Error {
  constructor() {
    super('The event was released before the handler was called.')
  }
}

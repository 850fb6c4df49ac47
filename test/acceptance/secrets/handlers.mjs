export default (outbox) => {
  outbox.on('eaten', 'eat', () => {})
}

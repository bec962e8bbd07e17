// What must be released at the end of a block, as in `using _ = defer(() => closeSync(file))`.

/** Calls `end` when the block is left, also by an error. With `await using`, waits for it. */
export function defer(end: () => unknown): Disposable & AsyncDisposable {
  return { [Symbol.dispose]: () => void end(), [Symbol.asyncDispose]: async () => void (await end()) };
}

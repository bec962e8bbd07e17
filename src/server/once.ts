// What is usually in memory and sometimes has to be read: no promise where none is needed, since for a check-in each
// costs more than what it waits for.

/** Goes on with what is there already, or when it comes. */
export function once<T, R>(value: T | Promise<T>, go: (value: T) => R | Promise<R>): R | Promise<R> {
  return value instanceof Promise ? value.then(go) : go(value);
}

// A cache whose entries together have a maximum size. The entry that was not used for longest goes first.

export type BoundedCache<T> = {
  get(key: string): T | undefined;
  /** An entry larger than the whole cache is not kept. */
  set(key: string, value: T, size: number): void;
  /** The present sum. */
  size(): number;
};

export function makeBoundedCache<T>(maxSize: number): BoundedCache<T> {
  const kept = new Map<string, { value: T; size: number }>();
  let sum = 0;
  const remove = (key: string) => {
    sum -= kept.get(key)?.size ?? 0;
    kept.delete(key);
  };
  return {
    get(key) {
      const found = kept.get(key);
      if (found === undefined) return undefined;
      kept.delete(key);
      kept.set(key, found);
      return found.value;
    },
    set(key, value, size) {
      remove(key);
      if (size > maxSize) return;
      kept.set(key, { value, size });
      sum += size;
      for (const oldest of kept.keys()) {
        if (sum <= maxSize) break;
        remove(oldest);
      }
    },
    size: () => sum,
  };
}

// Entries that wait until several of them are written together. Owners (organizations) take turns. Knows no route.

export type Backlog<T> = {
  readonly count: number;
  /** False if too much of this owner waits already. */
  add(owner: number, entry: T): boolean;
  /**
   * The next entries, of each owner in turn and in order, until their sizes reach `most`. An owner whose next entry may not join
   * the others waits. They stay in the backlog.
   */
  next(most: number, mayJoin: (entry: T, others: readonly T[]) => boolean): T[];
  remove(entries: readonly T[]): void;
};

/**
 * `room`: what waits in all, as a sum of sizes. One owner has a quarter of it at most. Once it is full, an owner that has less
 * than its share still gets that.
 */
export function makeBacklog<T>(room: number, sizeOf: (entry: T) => number): Backlog<T> {
  /** By owner, in the order of their turns. `size`: the sum of its entries. */
  const lines = new Map<number, { size: number; entries: Set<T> }>();
  const ownerOf = new Map<T, number>();
  let size = 0;
  return {
    get count() {
      return ownerOf.size;
    },
    add(owner, entry) {
      const line = lines.get(owner) ?? { size: 0, entries: new Set<T>() };
      const owners = lines.size + (line.size === 0 ? 1 : 0);
      if (line.size >= room / 4 || (size >= room && line.size >= room / owners)) return false;
      line.entries.add(entry);
      line.size += sizeOf(entry);
      size += sizeOf(entry);
      lines.set(owner, line);
      ownerOf.set(entry, owner);
      return true;
    },
    next(most, mayJoin) {
      const taken: T[] = [];
      let left = most;
      // In each round, the next entry of each owner that still has one.
      const unfinished = new Set([...lines.values()].map(({ entries }) => entries.values()));
      while (unfinished.size > 0)
        for (const entries of unfinished) {
          if (left <= 0) return taken;
          const { value, done } = entries.next();
          if (done === true || !mayJoin(value, taken)) {
            unfinished.delete(entries);
            continue;
          }
          taken.push(value);
          left -= sizeOf(value);
        }
      return taken;
    },
    remove(entries) {
      for (const entry of entries) {
        const owner = ownerOf.get(entry);
        const line = owner === undefined ? undefined : lines.get(owner);
        if (owner === undefined || line === undefined) continue;
        ownerOf.delete(entry);
        line.entries.delete(entry);
        line.size -= sizeOf(entry);
        size -= sizeOf(entry);
        // The owner had its turn: it moves to the end.
        lines.delete(owner);
        if (line.entries.size > 0) lines.set(owner, line);
      }
    },
  };
}

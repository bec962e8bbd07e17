// Fields that are there only if they have a value: an optional field is never present with undefined.

/** The fields that were given. `{} | null` is every value but undefined. */
export function given<T extends object>(fields: T): { [K in keyof T]?: T[K] & ({} | null) } {
  const result: { [K in keyof T]?: T[K] & ({} | null) } = {};
  for (const key in fields) {
    const value = fields[key];
    if (value !== undefined) result[key] = value;
  }
  return result;
}

// Finds the endpoint of a path, segment by segment: a fixed word and a number may stand at the same place
// (`nodes/register/` and `nodes/7/`), and looking costs little beside the rest of a check-in.

export type Params = Record<string, string>;

export type Router<T> = {
  /** Takes plain `:name` and `:name{pattern}` segments; a fixed word wins over a parameter. */
  add(path: string, endpoint: T): void;
  /** Percent-encoding is taken off each segment; what cannot be decoded is no path of ours. */
  match(path: string): { endpoint: T; params: Params } | undefined;
};

type Branch<T> = {
  words: Map<string, Branch<T>>;
  parameter?: { name: string; pattern: RegExp | undefined; branch: Branch<T> };
  endpoint?: T;
};

export function makeRouter<T>(): Router<T> {
  const root = branch<T>();
  return {
    add(path, endpoint) {
      let at = root;
      for (const segment of path.split("/").slice(1)) at = follow(at, segment);
      at.endpoint = endpoint;
    },
    match(path) {
      const params: Params = {};
      const endpoint = find(root, path, params)?.endpoint;
      return endpoint === undefined ? undefined : { endpoint, params };
    },
  };
}

function branch<T>(): Branch<T> {
  return { words: new Map() };
}

function follow<T>(at: Branch<T>, segment: string): Branch<T> {
  const [, name, pattern] = /^:([a-z_]+)(?:\{(.+)\})?$/.exec(segment) ?? [];
  if (name === undefined) {
    const next = at.words.get(segment) ?? branch<T>();
    at.words.set(segment, next);
    return next;
  }
  at.parameter ??= {
    name,
    pattern: pattern === undefined ? undefined : new RegExp(`^${pattern}$`),
    branch: branch<T>(),
  };
  return at.parameter.branch;
}

function find<T>(root: Branch<T>, path: string, params: Params): Branch<T> | undefined {
  let at = root;
  const isEncoded = path.includes("%");
  for (let start = 1; ;) {
    const slash = path.indexOf("/", start);
    const raw = slash === -1 ? path.slice(start) : path.slice(start, slash);
    const segment = isEncoded ? decoded(raw) : raw;
    if (segment === undefined) return undefined;
    const word = at.words.get(segment);
    if (word !== undefined) at = word;
    else {
      const { parameter } = at;
      if (parameter === undefined || segment === "" || parameter.pattern?.test(segment) === false)
        return undefined;
      params[parameter.name] = segment;
      at = parameter.branch;
    }
    if (slash === -1) return at;
    start = slash + 1;
  }
}

function decoded(segment: string): string | undefined {
  try {
    const text = decodeURIComponent(segment);
    // No database can hold it, so nothing is called that.
    return text.includes("\0") ? undefined : text;
  } catch (error) {
    if (error instanceof URIError) return undefined;
    throw error;
  }
}

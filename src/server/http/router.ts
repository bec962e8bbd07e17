// Finds the endpoint of a path, segment by segment. Hono's own routers either cannot hold our table (a fixed word and a
// number at the same place, `nodes/register/` and `nodes/7/`) or cost more than the rest of a check-in.

import { METHOD_NAME_ALL, type Params, type Router } from "hono/router";

type Branch<T> = {
  words: Map<string, Branch<T>>;
  parameter?: { name: string; pattern: RegExp | undefined; branch: Branch<T> };
  handlers: T[];
};

/** Takes `app.all(path)` with plain `:name` and `:name{pattern}` segments; a fixed word wins over a parameter. */
export function makeRouter<T>(): Router<T> {
  const root = branch<T>();
  return {
    name: "segments",
    add(method, path, handler) {
      if (method !== METHOD_NAME_ALL) throw new Error("Methods are told apart after the endpoint is known");
      let at = root;
      for (const segment of path.split("/").slice(1)) at = follow(at, segment);
      at.handlers.push(handler);
    },
    match(_method, path) {
      const params: Params = {};
      const found = find(root, path, params);
      return [found === undefined ? [] : found.handlers.map((handler) => [handler, params])];
    },
  };
}

function branch<T>(): Branch<T> {
  return { words: new Map(), handlers: [] };
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
  for (let start = 1; ;) {
    const slash = path.indexOf("/", start);
    const segment = slash === -1 ? path.slice(start) : path.slice(start, slash);
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

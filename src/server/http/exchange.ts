// One request, as the checks and its route see it. Each part is read on first use, because check-ins (most requests)
// need few of them. Knows no route.

import { notFound } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { maxPollWaitS } from "../../protocol/checkin.ts";
import { isStorable, notStorable } from "../../base/text.ts";
import { objectOf } from "./body.ts";
import type { Call, Caller, InputSource, Operator, OrganizationAccess } from "./route.ts";
import { parse, type Schema } from "./parse-input.ts";

/**
 * What only the listener knows: the peer address, until the client disconnects. `operator`: never set by a listener, so
 * that nothing in a request can claim it. `isOwnCa`: the request came by the listener that shows the own CA's certificate
 * beside a public one.
 */
export type Edge = { addressOf(request: Request): string; operator?: Operator; isOwnCa?: true };

/** The parameters of the path by name. */
export type Params = Readonly<Record<string, string | undefined>>;

export class Exchange implements Call, InputSource {
  // The pipeline sets the first five before it calls the route; `requireRoom` only for routes that let an organization grow.
  caller: Caller = { kind: "none" };
  org: OrganizationAccess | undefined = undefined;
  admitAgain: () => Promise<void> = () => Promise.resolve();
  requireFresh: () => Promise<void> = () => Promise.resolve();
  requireRoom: Call["requireRoom"] = () => Promise.resolve();
  readonly request: Request;
  /** The body, until the route takes it: a held request must not keep it in memory. */
  text = "";
  /** When the request arrived, by performance.now(). */
  readonly begun = performance.now();
  #id: string | undefined = undefined;
  #waitS: number | undefined = undefined;
  #address: string | undefined = undefined;
  #parameters: Readonly<Record<string, string>> | undefined = undefined;
  readonly #edge: Edge;
  readonly #params: Params;
  readonly #nextId: () => string;

  constructor(request: Request, edge: Edge, params: Params, nextId: () => string) {
    this.request = request;
    this.#edge = edge;
    this.#params = params;
    this.#nextId = nextId;
  }

  get requestId(): string {
    return (this.#id ??= this.#nextId());
  }

  /** The id, if a log line has it: only then the answer shows it. Reading it makes none. */
  get idInLog(): string | undefined {
    return this.#id;
  }

  /** The client address when first read. */
  get address(): string {
    return (this.#address ??= this.#edge.addressOf(this.request));
  }

  get operator(): Operator | undefined {
    return this.#edge.operator;
  }

  get isOwnCa(): boolean {
    return this.#edge.isOwnCa === true;
  }

  get waitS(): number {
    return (this.#waitS ??= waitOf(this.request));
  }

  param(name: string): string {
    const text = this.#params[name] ?? "";
    // Answer not_found: no database can store this text, so nothing has this name.
    if (!isStorable(text)) throw new AppError("not_found", notFound.path);
    return text;
  }

  id(name = "id"): number {
    return Number(this.param(name));
  }

  body<T>(schema: Schema<T>): T {
    const { text } = this;
    this.text = "";
    return parse(schema, objectOf(text, this.request.headers.get("content-type")));
  }

  get path(): string {
    return new URL(this.request.url).pathname;
  }

  parameters(): Readonly<Record<string, string>> {
    return (this.#parameters ??= parametersOf(this.request.url));
  }

  query<T>(schema: Schema<T>): T {
    return parse(schema, this.parameters());
  }
}

/**
 * The only place that reads a query, so that no two checks of a request see different values. A name that is given twice is
 * refused: readers take the first value or the last one, and a proxy may take the other.
 */
function parametersOf(url: string): Readonly<Record<string, string>> {
  const given = new Map<string, string>();
  for (const [name, value] of new URL(url).searchParams) {
    if (!isStorable(name) || !isStorable(value)) throw new AppError("bad_request", notStorable);
    if (given.has(name)) {
      const errors = Object.fromEntries([[name, ["This parameter is given more than once."]]]);
      throw new AppError("validation_failed", "The request is not valid.", { errors });
    }
    given.set(name, value);
  }
  // Object.fromEntries makes own keys, also of `__proto__`.
  return Object.fromEntries(given);
}

/** RFC 7240: `Prefer: wait=N`, seconds. */
function waitOf(request: Request): number {
  const prefer = request.headers.get("Prefer");
  if (prefer === null) return 0;
  const match = /(?:^|[,;\s])wait=(\d{1,4})(?:$|[,;\s])/.exec(prefer);
  return match === null ? 0 : Math.min(maxPollWaitS, Number(match[1]));
}

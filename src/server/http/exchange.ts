// One request on its way: what the checks ask of it and then the route. All of it is read when it is asked for, since a
// check-in, which most requests are, asks for little. Knows no route.

import { AppError } from "../../errors.ts";
import { maxPollWaitS } from "../../protocol.ts";
import { objectOf } from "./body.ts";
import {
  parse,
  type Call,
  type Caller,
  type InputSource,
  type OrganizationAccess,
  type Schema,
} from "./route.ts";

/** What the listener tells of a request beside the request itself: the address, until who asked has hung up. */
export type Edge = { addressOf(request: Request): string };

/** The parts of the path by their names. */
export type Params = Readonly<Record<string, string | undefined>>;

export class Exchange implements Call, InputSource {
  caller: Caller = { kind: "none" };
  org: OrganizationAccess | undefined = undefined;
  readonly request: Request;
  /** The body, from when it is read until it is taken: a request that is held for a minute keeps none. */
  text = "";
  /** By performance.now(). */
  readonly begun = performance.now();
  #id: string | undefined = undefined;
  #waitS: number | undefined = undefined;
  #address: string | undefined = undefined;
  readonly #edge: Edge;
  readonly #params: Params;
  readonly #nextId: () => string;
  /** Replaced by the pipeline before a route sees this. */
  admitAgain: () => Promise<void> = () => Promise.resolve();

  constructor(request: Request, edge: Edge, params: Params, nextId: () => string) {
    this.request = request;
    this.#edge = edge;
    this.#params = params;
    this.#nextId = nextId;
  }

  get requestId(): string {
    return (this.#id ??= this.#nextId());
  }

  /** The id, if anybody has asked for it: the log, that is. */
  get idInLog(): string | undefined {
    return this.#id;
  }

  /** As it was when first asked for. */
  get address(): string {
    return (this.#address ??= this.#edge.addressOf(this.request));
  }

  get waitS(): number {
    return (this.#waitS ??= waitOf(this.request));
  }

  param(name: string): string {
    const text = this.#params[name] ?? "";
    // No database can hold it, so nothing is called that.
    if (text.includes("\0")) throw new AppError("not_found", "There is nothing here.");
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

  query<T>(schema: Schema<T>): T {
    const given: Record<string, string> = {};
    for (const [key, value] of new URL(this.request.url).searchParams) {
      if (value.includes("\0")) throw new AppError("bad_request", "Null characters are not allowed.");
      given[key] = value;
    }
    return parse(schema, given);
  }
}

/** RFC 7240: `Prefer: wait=N`, seconds. */
function waitOf(request: Request): number {
  const prefer = request.headers.get("Prefer");
  if (prefer === null) return 0;
  const match = /(?:^|[,;\s])wait=(\d{1,4})(?:$|[,;\s])/.exec(prefer);
  return match === null ? 0 : Math.min(maxPollWaitS, Number(match[1]));
}

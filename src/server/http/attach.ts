// Attaches handlers to the endpoints of the contract (src/api/). A subject's routes.ts has one handler for each endpoint;
// TypeScript checks what each gets and what it answers.

import type * as v from "valibot";
import {
  numberParams,
  organizationPrefix,
  paramPattern,
  type Answer,
  type Endpoint,
  type InputOf,
  type ParamName,
} from "../../api/endpoint.ts";
import { AppError } from "../../base/errors.ts";
import {
  always,
  asksForFresh,
  isInOrganization,
  type Call,
  type InputSource,
  type OrganizationCall,
  type Reply,
  type Route,
} from "./route.ts";

type NumberName = (typeof numberParams)[number];
/** The handlers' view of a request; below an organization with the caller's access to it. */
export type CallOf<E extends Endpoint> = Omit<CallBelow<E["path"]>, "param" | "id"> & {
  param(name: Exclude<ParamName<E["path"]>, NumberName>): string;
  id(name?: Extract<ParamName<E["path"]>, NumberName>): number;
};
type CallBelow<Path> = Path extends `${typeof organizationPrefix}${string}` ? OrganizationCall : Call;

/** What an answer carries: JSON of its schema, which may be written already (`raw`); else bytes of its `type`; else nothing. */
type Content<A extends Answer> = A extends { schema: infer S extends v.GenericSchema }
  ? { body: Sendable<v.InferOutput<S>> } | { raw: NonNullable<Reply["raw"]> }
  : A extends { type: string }
    ? { raw: NonNullable<Reply["raw"]> }
    : { body?: never; raw?: never };
/** A list may be read-only: it is only written. */
type Sendable<T> = T extends readonly (infer Item)[] ? readonly Item[] : T;
/** One of the declared answers. `status` may be left out for 200, and where the answer is the only one. Nothing stands for 204. */
export type ReplyOf<E extends Endpoint> =
  | {
      [S in keyof E["answers"]]: (S extends 200 | OnlyStatus<E> ? { status?: S } : { status: S }) &
        Content<E["answers"][S] & Answer> &
        Pick<Reply, "headers" | "cookies">;
    }[keyof E["answers"]]
  | (OnlyStatus<E> extends 204 ? void : never);
/** The status of the only answer. `never` if several are declared. */
type OnlyStatus<E extends Endpoint> = {
  [S in keyof E["answers"]]: keyof E["answers"] extends S ? S : never;
}[keyof E["answers"]];

/** A method, so that handlers of a certain endpoint count as handlers of any. */
type Handle<E extends Endpoint> = {
  handle(call: CallOf<E>, input: InputOf<E>): ReplyOf<E> | Promise<ReplyOf<E>>;
}["handle"];
/**
 * `grows`: whether this request lets the organization grow; without it, each does. Revocations, changes of rights and
 * requests that only remove or shorten do not: never refuse them. Asked only at the maximum, because it may read what is
 * stored.
 */
type Growing<E extends Endpoint> = {
  grows(input: InputOf<E>, call: CallOf<E>): boolean | Promise<boolean>;
  handle: Handle<E>;
};
export type Handler<E extends Endpoint> = E extends { grows: true } ? Handle<E> | Growing<E> : Handle<E>;
export type Subject = Readonly<Record<string, Endpoint>>;
export type Handlers<S extends Subject> = { [K in keyof S]: Handler<S[K]> };

// The same for the code below, which does not know the endpoint.

type AnyReply = Reply | void | Promise<Reply | void>;
type AnyHandle = { handle(call: Call, input: unknown): AnyReply }["handle"];
type AnyHandler =
  AnyHandle | { grows(input: unknown, call: Call): boolean | Promise<boolean>; handle: AnyHandle };
type AnyHandlers = Readonly<Record<string, AnyHandler>>;
export type Attached<S extends Subject> = Handlers<S> & AnyHandlers;

/** The status of replies that name none. */
function usualStatus({ answers }: Endpoint): number {
  const [status, ...others] = Object.keys(answers);
  return others.length > 0 ? 200 : Number(status);
}

/** `handlers`: or a function that loads them at the first request of the subject, so that the server starts faster. */
export function attach<S extends Subject>(
  subject: S,
  handlers: Attached<S> | (() => Promise<Attached<S>>),
): Route[] {
  let loaded: AnyHandlers | undefined = typeof handlers === "function" ? undefined : handlers;
  const load = async () => (loaded ??= typeof handlers === "function" ? await handlers() : handlers);
  return Object.entries(subject).map(([key, endpoint]) => {
    const status = usualStatus(endpoint);
    const withStatus = (reply: Reply | void): Reply => ({ status, ...reply });
    return {
      ...endpoint,
      path: patternOf(endpoint),
      takes: endpoint,
      answer(call, source) {
        const input = inputOf(endpoint, source);
        // Once loaded, a handler is called in the same turn of the event loop: check-ins are answered that way.
        const run = () =>
          loaded === undefined
            ? load().then((found) => callHandler(endpoint, found[key], call, input))
            : callHandler(endpoint, loaded[key], call, input);
        const reply = asksForFresh(endpoint.fresh, input) ? call.requireFresh().then(run) : run();
        return reply instanceof Promise ? reply.then(withStatus) : withStatus(reply);
      },
    };
  });
}

/** In Hono's syntax. A path with anything else in the place of a number is unknown. */
const patternOf = (of: Endpoint) =>
  of.path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const pattern = paramPattern(of, name);
    return pattern === undefined ? `:${name}` : `:${name}{${pattern}}`;
  });

function inputOf({ body, query }: Endpoint, source: InputSource): unknown {
  if (body !== undefined) return source.body(body);
  return query === undefined ? undefined : source.query(query);
}

function callHandler(
  { name, path, grows }: Endpoint,
  handler: AnyHandler | undefined,
  call: Call,
  input: unknown,
): AnyReply {
  if (handler === undefined) throw new AppError("internal", `${name} has no handler`);
  const handle = typeof handler === "function" ? handler : handler.handle;
  if (!path.startsWith(organizationPrefix)) return handle(call, input);
  if (!isInOrganization(call)) throw new AppError("internal", `${name} has no organization`);
  if (grows !== true) return handle(call, input);
  const mayGrow = typeof handler === "function" ? always : () => handler.grows(input, call);
  return call.requireRoom(Object(input), mayGrow).then(() => handle(call, input));
}

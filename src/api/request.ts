// Builds the request to an endpoint, for the command line and nodes, which send it. Answers are read tolerantly: fields that this
// version does not know stay in them, and `--json` prints them.

import * as v from "valibot";
import {
  filledPath,
  hasQuery,
  type AnswerOf,
  type Endpoint,
  type CallInput,
  type Method,
  type Params,
} from "./endpoint.ts";

export type Request<T> = {
  method: Method;
  path: string;
  body?: object;
  /** Who may send it. */
  access: Endpoint["access"];
  /** Of the answer. */
  schema: v.GenericSchema<unknown, T>;
};

/** `input`: the body, or the query of a GET or DELETE. */
export function request<const E extends Endpoint>(
  of: E,
  params: Params<E>,
  ...[given]: CallInput<E>
): Request<AnswerOf<E>> {
  const input: object = given ?? {};
  return {
    method: of.method,
    access: of.access,
    path: filledPath(of.path, params, hasQuery(of) ? input : {}),
    ...(of.body === undefined ? {} : { body: input }),
    schema: readerOf(of),
  };
}

/** Accepts one of the declared answers, as it came. */
export function readerOf<E extends Endpoint>({ answers }: E): v.GenericSchema<unknown, AnswerOf<E>> {
  const schemas = Object.values(answers).flatMap(({ schema }) => schema ?? []);
  return v.custom<AnswerOf<E>>(
    (value) => schemas.length === 0 || schemas.some((schema) => v.is(schema, value)),
  );
}

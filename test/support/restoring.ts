// A control plane in this process for tests of backup and restore, one for each test of a file.

import { afterEach, beforeEach, expect } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { makeHostKey } from "../../src/pki/keys.ts";
import { paths } from "./paths.ts";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import type { Serving } from "../../src/server/serve.ts";
import { agentHere, serveHere } from "./in-process.ts";
import { makeKeys, type Keys } from "./nodes.ts";
import { temporaryDirectory } from "./temporary.ts";

const started: Serving[] = [];
/** The directory of the test, and two paths in it. */
export const place = { path: "", data: "", backup: "" };

/** Each test file calls this once. */
export function useControlPlane(): void {
  let directory: ReturnType<typeof temporaryDirectory>;
  beforeEach(() => {
    directory = temporaryDirectory();
    const { path } = directory;
    Object.assign(place, { path, data: join(path, "data"), backup: join(path, "backup.db") });
  });
  afterEach(async () => {
    await stop();
    directory[Symbol.dispose]();
  });
}

export async function serve(at = place.data): Promise<Serving> {
  const serving = await serveHere(at);
  started.push(serving);
  return serving;
}

export async function stop(): Promise<void> {
  for (const each of started.splice(0)) await each.stop();
}

export const admin = (words: string, at = place.data, input = "") =>
  agentHere(["admin", ...words.split(" "), "--data-dir", at], { input });

export async function must(words: string, at = place.data, input = ""): Promise<string> {
  const result = await admin(words, at, input);
  expect(`${words}: ${result.status} ${result.err}${result.status === 0 ? "" : result.out}`).toStartWith(
    `${words}: 0 `,
  );
  return result.out;
}

export const json = async (words: string, at = place.data): Promise<unknown> =>
  JSON.parse(await must(`${words} --json`, at));

export async function post(url: string, path: string, body: unknown, token?: string): Promise<Response> {
  return fetch(url + path, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify(body),
  });
}

/** An access token of a user that `populate` or the test has made. */
export async function signIn(url: string, email = "ada@example.org"): Promise<string> {
  const answer = await post(url, "/api/token/", { email, password });
  return v.parse(v.object({ access: v.string() }), await answer.json()).access;
}

export async function makeToken(uses = 10): Promise<{ id: number; token: string }> {
  const made = await json(`token create acme --uses ${uses}`);
  return v.parse(v.object({ id: v.number(), token: v.string() }), made);
}

export async function register(
  url: string,
  name: string,
  token: string,
  keys: Partial<Keys> = { host_public_key: makeHostKey().publicPem },
): Promise<RegisterAnswer> {
  const body = { name, ...keys, registration_token: token };
  const answer = await post(url, paths.register("acme"), body);
  expect(answer.status).toBe(201);
  return v.parse(RegisterAnswer, await answer.json());
}

export const checkin = (url: string, { node, api_token }: RegisterAnswer) =>
  post(url, paths.checkin("acme", node.id), { version: "1", uptime: 1 }, api_token);

export const password = "correct horse battery";

/** An organization with two nodes and a user. */
export async function populate() {
  const { url } = await serve();
  await must("user create ada@example.org --staff --password-file -", place.data, password);
  await must("user create bob@example.org --password-file -", place.data, password);
  await must("org create acme --network 10.77.0.0/16 --owner ada@example.org");
  await must("member create acme bob@example.org --role admin");
  const { token } = await makeToken();
  const a = await register(url, "a", token);
  const keys = await makeKeys("b");
  const b = await register(url, "b", token, keys);
  return { url, token, a, b, keys };
}

// One organization with an administrator, asked by requests like those of agents and administrators.

import { afterEach, beforeEach, expect } from "bun:test";
import * as v from "valibot";
import { ErrorBody } from "../../src/protocol/error-body.ts";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import { makeKeys } from "./nodes.ts";
import { makeTestServer, type Answer, type TestServer } from "./server.ts";

/** A new server with the organization "acme" for each test. */
export function useAcme() {
  let server: TestServer;
  let admin: string;
  beforeEach(async () => {
    server = await makeTestServer();
    const org = await server.organization("acme", "10.77.0.0/24");
    admin = await server.person("admin@example.org");
    await server.join(org, "admin@example.org", "admin");
  });
  afterEach(() => server[Symbol.asyncDispose]());
  const post = (path: string, body: unknown, token?: string, headers: Record<string, string> = {}) =>
    server.send("POST", `/api/org/acme/${path}`, {
      body,
      headers,
      ...(token === undefined ? {} : { token }),
    });
  return {
    get server() {
      return server;
    },
    /** The administrator's access token. */
    get admin() {
      return admin;
    },
    post,
    get: (path: string, token: string, headers: Record<string, string> = {}) =>
      server.send("GET", `/api/org/acme/${path}`, { token, headers }),
    async register(name: string, more: Record<string, unknown> = {}) {
      const keys = await makeKeys("any");
      const answer = await post("nodes/register/", { name, ...keys, ...more }, admin);
      expect(answer.status).toBe(201);
      return { ...v.parse(RegisterAnswer, answer.json), keys };
    },
    async registrationToken(more: Record<string, unknown> = {}): Promise<string> {
      const answer = await post("registration_tokens/", more, admin);
      return v.parse(v.object({ token: v.string() }), answer.json).token;
    },
  };
}

export const codeOf = (answer: Answer): string => v.parse(ErrorBody, answer.json).code;

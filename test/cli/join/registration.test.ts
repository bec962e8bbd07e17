// register and unregister in this process, against the real application: their output, refusals before any request, and the
// files that remain.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { fingerprintOfHostKey, publicPemOfHostKey } from "../../../src/pki/keys.ts";
import { wordsOfKey } from "../../../src/protocol/key-words.ts";
import {
  apiBase,
  makeNodeWorld,
  registerByCommand,
  registerWords,
  type NodeWorld,
} from "../../support/node.ts";

let world: NodeWorld;

beforeEach(async () => {
  world = await makeNodeWorld();
});

afterEach(() => world[Symbol.asyncDispose]());

const register = (extra?: readonly string[]) => registerByCommand(world, extra);

const Failure = v.object({ error: v.object({ code: v.string(), message: v.string() }) });

test("register prints its result and the remaining steps", async () => {
  const { status, json, stderr } = await register(["--json"]);
  expect({ status, json }).toEqual({
    status: 0,
    json: {
      org_slug: "acme",
      node_id: 1,
      name: "alpha",
      ip_address: "10.77.0.1",
      mode: "server",
      directory: join(world.root, "acme"),
      started: false,
    },
  });
  expect(stderr).toContain("--no-start");
});

test("key-words prints six words of the host key, from its private half", async () => {
  const { directory } = await world.register();
  const { stdout, status } = await world.agent(["key-words", "acme"]);
  const print = fingerprintOfHostKey(publicPemOfHostKey(readFileSync(join(directory, "host.key"), "utf8")));
  expect([status, stdout]).toEqual([0, `alpha: ${wordsOfKey(print, 6).join(" ")}\n`]);
  // The first ones are those that a browser asks for.
  expect(wordsOfKey(print, 6).slice(0, 4)).toEqual(wordsOfKey(print));
});

test("register refuses a hash that is none", async () => {
  const { status, stderr } = await world.agent([
    ...registerWords,
    "--registration-token",
    "a",
    "--seal",
    "5f",
  ]);
  expect([status, stderr]).toEqual([2, expect.stringContaining("64 hexadecimal digits")]);
});

test("register without a token and terminal, or with two tokens: exit 2", async () => {
  const without = await world.agent(registerWords);
  expect(without.status).toBe(2);
  expect(without.stderr).toContain("--registration-token");
  const both = await world.agent([...registerWords, "--registration-token", "a", "--access-token", "b"]);
  expect(both.status).toBe(2);
  expect(both.stderr).toContain("not both");
  expect(readdirSync(world.root)).toEqual([]);
});

const wrongWords: [string, string[]][] = [
  ["an impossible slug", ["--org-slug", "Acme!"]],
  ["an impossible name", ["--org-slug", "acme", "--node-name", "a_b"]],
  ["an impossible port", ["--org-slug", "acme", "--external-port", "70000"]],
  ["an impossible mode", ["--org-slug", "acme", "--mode", "both"]],
  ["no address at all", ["--org-slug", "acme", "--api-base", "control.example"]],
  ["plain HTTP", ["--org-slug", "acme", "--api-base", "http://control.example"]],
  ["a fingerprint that is none", ["--org-slug", "acme", "--ca-fingerprint", "sha256:12"]],
];
for (const [what, words] of wrongWords) {
  test(`register with ${what}: exit 2, without a request or a file`, async () => {
    const base = words.includes("--api-base") ? [] : ["--api-base", apiBase];
    const before = world.requests.length;
    const { status, json } = await world.agent([
      "register",
      ...base,
      ...words,
      "--registration-token",
      "x",
      "--json",
    ]);
    expect(status).toBe(2);
    expect(v.parse(Failure, json).error.code).toBe("usage");
    expect(world.requests).toHaveLength(before);
    expect(readdirSync(world.root)).toEqual([]);
  });
}

test("register with a user's access token", async () => {
  const { status, json } = await world.agent(
    [...registerWords, "--access-token-file", "-", "--no-start", "--json"],
    {
      stdin: world.owner,
    },
  );
  expect({ status, json }).toMatchObject({ status: 0, json: { name: "alpha" } });
});

test("register --force without --mode keeps the mode", async () => {
  await register();
  const words = registerWords.filter((word) => word !== "--mode" && word !== "server");
  const stdin = `${await world.token()}\n`;
  const { status, json } = await world.agent(
    [...words, "--registration-token-file", "-", "--no-start", "--force", "--json"],
    { stdin },
  );
  expect({ status, json }).toMatchObject({ status: 0, json: { mode: "server" } });
});

test("unregister tells the control plane, which revokes the node", async () => {
  await register();
  const { status, json, stderr } = await world.agent(["unregister", "--org-slug", "acme", "--json"]);
  expect({ status, json }).toMatchObject({
    status: 0,
    json: { org_slug: "acme", node_id: 1, deleted: true },
  });
  expect(json).not.toHaveProperty("request_left");
  expect(stderr).toBe("");
  expect(readdirSync(world.root)).toEqual([]);
  expect(await world.api("GET", "/api/org/acme/nodes/1/")).toMatchObject({ state: "revoked" });
});

test("unregister of a node that the control plane has revoked needs no administrator any more", async () => {
  await register();
  await world.api("DELETE", "/api/org/acme/nodes/1/");
  const { status, json } = await world.agent(["unregister", "--org-slug", "acme", "--json"]);
  expect({ status, json }).toMatchObject({ status: 0, json: { deleted: true } });
});

test.each([
  ["is away", () => Promise.reject(new Error("refused"))],
  ["is too old", (answer: unknown) => Promise.resolve(Response.json(answer))],
])(
  "unregister where the control plane %s removes the local files, and shows the request that deletes the node",
  async (_, answer) => {
    await register();
    const { fetch } = world.system;
    world.system.fetch = async (url, init) => {
      if (!url.endsWith("/checkin/")) return fetch(url, init);
      const time = "2026-11-22T12:00:00Z";
      const old = { last_checkin_at: time, server_time: time, certificate_not_after: time };
      return answer({ ...old, config_version: 1, config_changed: false });
    };
    const { status, json, stderr } = await world.agent(["unregister", "--org-slug", "acme", "--json"]);
    const request_left = `DELETE ${apiBase}/api/org/acme/nodes/1/`;
    expect({ status, json }).toMatchObject({ status: 0, json: { node_id: 1, deleted: false, request_left } });
    expect(stderr).toContain("could not be told");
    expect(stderr).toContain("agent admin node delete acme alpha");
    expect(readdirSync(world.root)).toEqual([]);
    world.system.fetch = fetch;
    expect(await world.api("GET", "/api/org/acme/nodes/1/")).toMatchObject({ state: "active" });
  },
);

test("unregister with a token also deletes the node; a token without permission changes nothing", async () => {
  await register();
  const stranger = await world.server.person("stranger@company.example");
  const refused = await world.agent(["unregister", "--org-slug", "acme", "--access-token-file", "-"], {
    stdin: stranger,
  });
  expect(refused.status).not.toBe(0);
  expect(existsSync(join(world.root, "acme/host.key"))).toBe(true);
  const left = await world.agent(["unregister", "--org-slug", "acme", "--access-token-file", "-", "--json"], {
    stdin: world.owner,
  });
  expect(left).toMatchObject({ status: 0, json: { deleted: true } });
  expect(readdirSync(world.root)).toEqual([]);
});

// A machine that joins without a key, against the real control plane: what it shows, what it leaves behind, and how it goes on
// after an interruption. The browser's part is what the console's page sends.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { makeClient } from "../../../src/node/contact/requests/client.ts";
import {
  awaitConfirmation,
  findEnrollment,
  saveEnrollment,
  type Shown,
} from "../../../src/node/enroll/browser-enrollment.ts";
import { rejection } from "../../pki/thrown.ts";
import { signInBrowser } from "../../support/browser-session.ts";
import { apiBase, makeNodeWorld, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;
beforeEach(async () => {
  world = await makeNodeWorld();
});
afterEach(() => world[Symbol.asyncDispose]());

const client = () => makeClient({ base: apiBase, system: world.system, log: world.log });
const pending = () => join(world.root, ".acme.pending");

async function confirm({ address, words }: Shown) {
  const browser = await signInBrowser(world.server, "owner@company.example");
  const body = { request: new URL(address).searchParams.get("request"), words: words.join(" ") };
  return browser.send("POST", "/api/org/acme/enrollments/confirm/", { body });
}
/** Waits; `act` runs the first time that the machine sleeps. Time passes with each sleep. */
async function wait(act: (shown: Shown) => Promise<unknown>, name = "alpha", slug?: string) {
  const shown: Shown[] = [];
  let isDone = false;
  world.system.sleep = async (ms) => {
    world.server.clock.ms += ms;
    const [first] = shown;
    if (isDone || first === undefined) return;
    isDone = true;
    await act(first);
  };
  return awaitConfirmation(client(), { name, slug }, world, (each) => void shown.push(each));
}
const registerAs = (enrolled: { name: string; registrationToken: string }, name = enrolled.name) =>
  world.register({ name, credential: enrolled, isEnrolled: true });

test("four words and an address; after the confirmation the machine registers with the keys of the words", async () => {
  let words: readonly string[] = [];
  const enrolled = await wait(async (shown) => {
    // An interruption here leaves nothing.
    expect(readdirSync(world.root)).toEqual([]);
    ({ words } = shown);
    expect((await confirm(shown)).status).toBe(204);
  });
  expect(words.length).toBe(4);
  expect(enrolled).toMatchObject({ slug: "acme", name: "alpha" });
  await saveEnrollment(world.root, apiBase, enrolled, world.system);
  expect(statSync(pending()).mode & 0o777).toBe(0o700);
  expect(statSync(join(pending(), "enrollment.json")).mode & 0o777).toBe(0o600);
  const { directory, config } = await registerAs(enrolled);
  expect(config.name).toBe("alpha");
  expect(readFileSync(join(directory, "host.key"), "utf8")).toBe(enrolled.keys.host);
  expect([existsSync(join(directory, "enrollment.json")), existsSync(pending())]).toEqual([false, false]);
  const [node] = (await world.api("GET", "/api/org/acme/nodes/")) as [{ owner_id: number | null }];
  expect(node.owner_id).not.toBeNull();
});

test("a run after a kill finds the confirmation, for this control plane and organization only", async () => {
  const enrolled = await wait(confirm);
  await saveEnrollment(world.root, apiBase, enrolled, world.system);
  const { keys: _, ...kept } = enrolled;
  expect(findEnrollment(world.root, apiBase, undefined)).toEqual(kept);
  expect(findEnrollment(world.root, apiBase, "acme")).toEqual(kept);
  expect(findEnrollment(world.root, apiBase, "other")).toBeUndefined();
  expect(findEnrollment(world.root, "https://other.example", undefined)).toBeUndefined();
  const { fetch } = world.system;
  world.system.fetch = async (url, init) => {
    const answer = await fetch(url, init);
    if (url.endsWith("/nodes/register/")) throw new Error("the answer is lost");
    return answer;
  };
  expect(await rejection(registerAs(kept))).toMatchObject({ code: "control_plane_unreachable" });
  world.system.fetch = fetch;
  const { directory } = await registerAs(kept);
  expect(readFileSync(join(directory, "host.key"), "utf8")).toBe(enrolled.keys.host);
  expect((await world.api("GET", "/api/org/acme/nodes/")) as unknown[]).toHaveLength(1);
});

test("a kept confirmation that does not count any more is removed with its keys", async () => {
  for (const [name, late, code] of [
    ["alpha", 11 * 60_000, "token_not_valid"],
    ["other", 0, "conflict"],
  ] as const) {
    const enrolled = await wait(confirm);
    await saveEnrollment(world.root, apiBase, enrolled, world.system);
    world.server.clock.ms += late;
    expect(await rejection(registerAs(enrolled, name))).toMatchObject({ code });
    expect(readdirSync(world.root)).toEqual([]);
  }
});

test("keys of another registration that was interrupted are not those of the words: they are replaced", async () => {
  const { fetch } = world.system;
  world.system.fetch = async () => Promise.reject(new Error("the network is away"));
  await rejection(world.register());
  expect(existsSync(join(pending(), "host.key"))).toBe(true);
  world.system.fetch = fetch;
  const enrolled = await wait(confirm);
  await saveEnrollment(world.root, apiBase, enrolled, world.system);
  const { directory } = await registerAs(enrolled);
  expect(readFileSync(join(directory, "host.key"), "utf8")).toBe(enrolled.keys.host);
});

test("nobody confirms: the wait ends with a sentence and leaves nothing", async () => {
  // The control plane chooses the time, such as 100 seconds.
  const { fetch } = world.system;
  world.system.fetch = async (url, init) => {
    const answer = await fetch(url, init);
    if (!url.endsWith("/enrollments/")) return answer;
    return Response.json({ ...((await answer.json()) as object), expires_in: 100 }, answer);
  };
  const late = await rejection(wait(async () => {}));
  expect(late).toMatchObject({
    code: "enrollment_ended",
    message: "No user confirmed this machine within 2 minutes",
  });
  expect(late.details.hint).toContain("again");
  expect(readdirSync(world.root)).toEqual([]);
});

test("five times wrong words end the wait at once; a control plane that is away does not", async () => {
  const ended = await rejection(
    wait(async (shown) => {
      for (let times = 0; times < 5; times++) await confirm({ ...shown, words: ["maple"] });
    }),
  );
  expect([ended.code, ended.message]).toEqual(["enrollment_ended", expect.stringContaining("Wrong words")]);
  world.server.clock.ms += 3_600_000;
  const { fetch } = world.system;
  const enrolled = await wait(async (shown) => {
    world.system.fetch = async () => {
      world.system.fetch = fetch;
      throw new Error("it restarts");
    };
    await confirm(shown);
  });
  expect(enrolled.slug).toBe("acme");
});

test("an answer for another organization than the one that was asked for is not trusted", async () => {
  const { fetch } = world.system;
  const refused = await rejection(
    wait(
      async (shown) => {
        await confirm(shown);
        world.system.fetch = async (url, init) => {
          const answer = await fetch(url, init);
          return new Response((await answer.text()).replace('"acme"', '"evil"'), answer);
        };
      },
      "alpha",
      "acme",
    ),
  );
  expect(refused).toMatchObject({ code: "untrusted_answer" });
});

test("a control plane without this answers that it is too old", async () => {
  world.system.fetch = async () =>
    Response.json(
      { error: "Not Found", code: "not_found", detail: "No.", status_code: 404 },
      { status: 404 },
    );
  expect(await rejection(wait(async () => {}))).toMatchObject({
    code: "not_found",
    message: expect.stringContaining("too old"),
  });
});

test("the command refuses what does not fit together, before it asks anybody", async () => {
  for (const [words, said] of [
    [["up", apiBase, "--public-ip", "203.0.113.7"], "ordinary node"],
    [["up", apiBase, "--key-file", "-"], "not both"],
    [["up", "--org", "acme"], "goes with the URL"],
    [["up", "http://control.example"], "unencrypted"],
    [["up", apiBase, "--dry-run"], "--org"],
    [["up", `${apiBase}/?key=1`], "credentials or a query"],
  ] as const) {
    const { status, stderr } = await world.agent(words);
    expect([words.join(" "), status, stderr]).toEqual([words.join(" "), 2, expect.stringContaining(said)]);
  }
  expect(world.requests).toEqual([]);
  const { json } = await world.agent(["up", apiBase, "--org", "acme", "--dry-run", "--json"]);
  const plan = JSON.stringify(json);
  for (const path of ["enrollments/", "enrollments/poll/", "org/acme/nodes/register/"])
    expect(plan).toContain(`${apiBase}/api/${path}`);
  expect(world.requests).toEqual([]);
});

// Invalid input gets a message and the documented exit status, and leaves nothing on this machine or on the control
// plane.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { tokenPairsApi } from "../../src/api/sessions.ts";
import { paths } from "../support/paths.ts";
import { buildAgent, runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { runSync } from "../support/debian.ts";
import { asRoot } from "../support/engines.ts";
import { makeOrganization, owner, registerNode, tryRegister, type Organization } from "../support/overlay.ts";

const directory = mkdtempSync(join(tmpdir(), "agent-test-"));
let plane: ControlPlane;
let acme: Organization;
let token: string;
let count = 0;

beforeAll(async () => {
  buildAgent();
  plane = await startControlPlane(join(directory, "server"));
  acme = await makeOrganization(plane);
  token = await acme.makeToken(["--uses", "50"]);
  await registerNode(acme, join(directory, "first"), "first", token, ["--ip-address", "10.77.0.9"]);
});

afterAll(async () => {
  await plane.stop();
  rmSync(directory, { recursive: true, force: true });
});

const Failure = v.object({
  error: v.object({ code: v.string(), message: v.string(), hint: v.optional(v.string()) }),
});

/** Names of all nodes on the control plane. */
async function nodeNames(organization = acme): Promise<string[]> {
  const answer = await organization.api("GET", paths.nodes(organization.slug));
  return v.parse(v.array(v.object({ name: v.string() })), await answer.json()).map((node) => node.name);
}

/** Code and message of a registration that must fail. Checks that it leaves nothing. */
async function refused(
  status: number,
  to: { slug: string; url?: string },
  flags: string[],
  using = token,
): Promise<v.InferOutput<typeof Failure>["error"]> {
  const before = await nodeNames();
  const root = join(directory, `refused-${count++}`);
  mkdirSync(root);
  const target = { slug: to.slug, plane: { url: to.url ?? plane.url } };
  const result = await tryRegister(target, root, "newcomer", using, flags);
  expect(`${result.status} ${result.stdout}`).toStartWith(`${status} {"error":`);
  expect(readdirSync(root)).toEqual([]);
  expect(await nodeNames()).toEqual(before);
  return v.parse(Failure, JSON.parse(result.stdout)).error;
}

describe("register is refused", () => {
  test("unknown organization", async () => {
    // The answer must not reveal which organizations exist.
    const { code, hint } = await refused(5, { slug: "nobody" }, []);
    expect([code, hint]).toEqual(["token_not_valid", expect.stringContaining("nobody")]);
  });

  test("name taken", async () => {
    // A second --node-name would be refused as given twice, so this registers as the first node again.
    const root = join(directory, "taken");
    mkdirSync(root);
    const { status, stdout } = await tryRegister(acme, root, "first", token);
    expect(status).toBe(1);
    expect(v.parse(Failure, JSON.parse(stdout)).error.code).toBe("name_taken");
    expect(readdirSync(root)).toEqual([]);
    expect(await nodeNames()).toEqual(["first"]);
  });

  test("address taken", async () => {
    expect(await refused(1, acme, ["--ip-address", "10.77.0.9"])).toMatchObject({ code: "address_taken" });
  });

  test("address outside the network", async () => {
    const { message } = await refused(1, acme, ["--ip-address", "10.78.0.1"]);
    expect(message).toMatch(/10\.7[78]/);
  });

  test("plain HTTP to a host that is not loopback", async () => {
    const { code, message } = await refused(2, { slug: "acme", url: "http://192.0.2.1:8420" }, []);
    expect(code).toBe("usage");
    expect(message).toContain("http");
  });

  test("a token that was never issued, and one that is used up", async () => {
    await refused(5, acme, [], "A".repeat(43));
    const single = await acme.makeToken(["--uses", "1"]);
    await registerNode(acme, join(directory, "single"), "single", single);
    await refused(5, acme, [], single);
  });

  test("an expired token", async () => {
    const short = await acme.makeToken(["--expires", "1s"]);
    await Bun.sleep(1500);
    await refused(5, acme, [], short);
  });

  test("a lighthouse by a token that does not permit it", async () => {
    expect(await refused(5, acme, ["--is-lighthouse", "--public-ip", "192.0.2.1"])).toMatchObject({
      code: "token_scope",
    });
  });

  test("unreachable control plane", async () => {
    const { code } = await refused(6, { slug: "acme", url: "http://127.0.0.1:1" }, []);
    expect(code).toBe("control_plane_unreachable");
  });

  test("the network is full", async () => {
    const small = await makeOrganization(plane, "small", "10.99.0.0/30");
    const uses = await small.makeToken(["--uses", "10"]);
    const root = (name: string) => join(directory, `small-${name}`);
    await registerNode(small, root("one"), "one", uses);
    await registerNode(small, root("two"), "two", uses);
    mkdirSync(root("three"));
    const { status, stdout } = await tryRegister(small, root("three"), "three", uses);
    expect(status).toBe(1);
    expect(v.parse(Failure, JSON.parse(stdout)).error.code).toBe("network_full");
    expect(readdirSync(root("three"))).toEqual([]);
    expect(await nodeNames(small)).toEqual(["one", "two"]);
  });
});

test("a wrong password gives the same message for every user", async () => {
  const ask = (email: string) =>
    acme
      .api("POST", tokenPairsApi.create.path, { email, password: "wrong" }, undefined)
      .then(async (answer) => ({
        status: answer.status,
        body: await answer.json(),
      }));
  const known = await ask(owner.email);
  expect(known.status).toBe(401);
  expect(known.body).toMatchObject({ code: "invalid_credentials" });
  expect(await ask("nobody@company.example")).toEqual(known);
});

test("without an organization, node commands exit 4 and show how to register", async () => {
  const root = join(directory, "empty");
  mkdirSync(root);
  for (const command of ["checkin", "sync-config", "check-auth"]) {
    const { status, stderr } = await runAgent([command, "--config-root", root]);
    expect(`${command} ${status}`).toBe(`${command} 4`);
    expect(stderr).toContain("register");
  }
  expect(readdirSync(root)).toEqual([]);
});

asRoot("a full disk", () => {
  test("ends the registration with a message for any file; with free space the next run continues it", async () => {
    const root = join(directory, "full");
    mkdirSync(root);
    let met = 0;
    for (let kib = 4; kib <= 40; kib += 4) {
      const name = `tight-${kib}`;
      const single = await acme.makeToken(["--uses", "1"]);
      // Files take a page each, so each size fills the disk at another file.
      runSync(["mount", "-t", "tmpfs", "-o", `size=${kib}k`, "tmpfs", root]);
      try {
        const first = await tryRegister(acme, root, name, single);
        if (first.status !== 0) {
          met++;
          expect(v.parse(Failure, JSON.parse(first.stdout)).error.code).toBe("disk_full");
          expect(first.status).toBe(1);
          expect(existsSync(join(root, "acme"))).toBe(false);
          runSync(["mount", "-o", "remount,size=4m", root]);
          const second = await tryRegister(acme, root, name, single);
          expect(`${second.status} ${second.stdout}`).toStartWith("0");
        }
        expect(readdirSync(root)).toEqual(["acme"]);
        expect((await nodeNames()).filter((each) => each === name)).toEqual([name]);
        expect(readFileSync(join(root, "acme/config.yml"), "utf8")).toContain("pki:");
      } finally {
        runSync(["umount", root]);
      }
    }
    expect(met).toBeGreaterThan(5);
  }, 60_000);
});

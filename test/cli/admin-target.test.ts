// Which control plane an admin command means, and the session that it uses there.

import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { requireLocalData, sayTarget } from "../../src/cli/admin/target.ts";
import { Values } from "../../src/cli/values.ts";
import { profilesPlace, readProfiles } from "../../src/node/files/profiles.ts";
import { realSystem } from "../../src/base/system.ts";
import { runAdmin } from "../support/admin.ts";
import { agentHere, serveHere } from "../support/in-process.ts";
import { apiBase, makeNodeWorld, registerByCommand } from "../support/node.ts";
import { makeRemoteAgent, password } from "../support/remote-agent.ts";

// Some tests run many commands: on a busy machine that takes longer than the default.
setDefaultTimeout(120_000);
const { path: directory, data, profiles, serving, agent, must, signIn, stop } = await makeRemoteAgent();
afterAll(stop);
await runAdmin(data, ["org", "create", "acme", "--network", "10.77.0.0/16"]);

test.skipIf(process.getuid?.() !== 0)(
  "root uses no profile of another user, whose HOME a sudo has kept",
  async () => {
    const home = join(directory, "ada");
    const place = join(home, ".config/overlay-agent/profiles");
    const theirs = { api_base: "https://ada.example", email: "ada@example.org" };
    mkdirSync(place, { recursive: true });
    writeFileSync(
      join(place, "profiles.json"),
      JSON.stringify({ current: "ada", profiles: { ada: theirs } }),
    );
    const as = (isRoot: boolean) => ({ ...realSystem(), isRoot, env: { HOME: home } });
    expect(readProfiles(as(true)).current).toBe("ada");
    Bun.spawnSync(["chown", "-R", "nobody", home]);
    expect(readProfiles(as(false)).current).toBe("ada");
    expect(readProfiles(as(true)).profiles).not.toHaveProperty("ada");
    expect(profilesPlace(as(false))).toBe(place);
    expect(profilesPlace(as(true))).toBe("/root/.config/overlay-agent/profiles");
    // What root would make in a home of another user belongs to that user's power, too.
    rmSync(join(home, ".config"), { recursive: true });
    expect(profilesPlace(as(true))).toBe("/root/.config/overlay-agent/profiles");
  },
);

describe("the target", () => {
  test("is --api-base, else the chosen profile, else the local data; --local forces the last", async () => {
    await signIn();
    expect(await must("whoami")).toMatchObject({ target: "remote" });
    expect(await must(`whoami --local --data-dir ${data}`)).toMatchObject({
      target: "local",
      data_dir: data,
    });
    // Naming the data is enough.
    expect(await must(`whoami --data-dir ${data}`)).toMatchObject({ target: "local" });
    expect((await agent(`whoami --data-dir ${data} --api-base ${serving.url}`)).err).toContain("give one");
    const nobody = await agent("whoami", "", { XDG_CONFIG_HOME: join(directory, "nobody") });
    expect([nobody.status, nobody.out]).toEqual([0, expect.stringContaining("You are not signed in")]);
    expect(nobody.out).not.toContain("work on the local data");
    expect((await agent(`whoami --data-dir ${data}`)).out).toBe(
      `Admin commands work on the local data in ${data}\nProfiles: plane\n`,
    );
    const unknown = await agent("admin org list --profile nope");
    expect(unknown).toMatchObject({ status: 1, err: expect.stringContaining("Profiles: plane") });
  });

  test("is named before a change if it is another machine, or if the user may mean one", () => {
    const said = (target: Parameters<typeof sayTarget>[0], verbose = false) => {
      const lines: string[] = [];
      sayTarget(target, { output: { say: (line) => void lines.push(line) }, settings: { verbose } });
      return lines;
    };
    const local = { kind: "local", options: { dataDirectory: "/d" }, name: "the local data in /d" } as const;
    expect(said({ ...local, isSurprising: false })).toEqual([]);
    expect(said({ ...local, isSurprising: true })).toEqual(["On the local data in /d:"]);
    expect(said({ ...local, isSurprising: false }, true)).toEqual(["On the local data in /d:"]);
  });

  test("of a token is never guessed: it could go to another control plane", async () => {
    await signIn();
    const refused = await agent("admin org list", "", { AGENT_ACCESS_TOKEN: "a-token-of-another-one" });
    expect(refused).toMatchObject({ status: 2, err: expect.stringContaining("AGENT_ACCESS_TOKEN") });
    expect((await agent("admin org list --profile constructor")).err).toContain("no profile constructor");
  });

  test("without a session is named, with the line that signs in", async () => {
    const at = { XDG_CONFIG_HOME: join(directory, "nobody") };
    const refused = await agent(`admin org list --api-base ${serving.url}`, "", at);
    expect(refused.status).toBe(4);
    expect(refused.err).toContain(`agent login --api-base ${serving.url}`);
    expect(refused.err).not.toContain("control plane data in");
  });

  test("without a choice and without data is nothing, and the message names the control plane of this machine", async () => {
    await using world = await makeNodeWorld();
    await registerByCommand(world);
    const caFile = join(world.root, "acme/api-ca.crt");
    writeFileSync(caFile, readFileSync(join(world.root, "acme/node.crt")));
    const env = { XDG_CONFIG_HOME: join(directory, "nobody"), AGENT_DATA_DIR: "" };
    for (const line of ["node list acme", "token create acme", "backup FILE", "node list acme --dry-run"]) {
      const { status, stderr } = await world.agent(["admin", ...line.split(" ")], { env });
      expect([line, status]).toEqual([line, 1]);
      expect(stderr).toContain("You are not signed in at a control plane");
      expect(stderr).toContain(`agent login --api-base ${apiBase} --ca-fingerprint sha256:`);
      expect(stderr).not.toContain("local data in");
    }
    writeFileSync(caFile, "damaged");
    const { stderr } = await world.agent(["admin", "node", "list", "acme"], { env });
    expect(stderr).toContain(`agent login --api-base ${apiBase}\``);
  });

  test("without a session, beside data of root, is refused with the line that reads it", async () => {
    const values = new Values(new Map(), realSystem());
    const context = { values, settings: { configRoot: directory }, system: realSystem() };
    const ask = (isRoot: boolean, rootData: string) =>
      requireLocalData(
        { ...context, system: { ...context.system, isRoot } },
        { dataDirectory: join(directory, "none") },
        rootData,
      ).catch((error: unknown) => error);
    expect(await ask(false, data)).toMatchObject({
      code: "os_permission",
      message: expect.stringContaining(data),
      details: { hint: expect.stringContaining("`sudo agent admin") },
    });
    for (const [isRoot, rootData] of [
      [true, data],
      [false, join(directory, "none")],
    ] as const)
      expect(await ask(isRoot, rootData)).toMatchObject({ code: "not_found" });
  });

  test("of a backup is only the machine of the control plane, and the refusal says so", async () => {
    await signIn();
    for (const line of [
      "backup FILE",
      "restore FILE",
      "key rotate",
      "audit verify",
      "export acme DIR --plain",
      "backup FILE --dry-run",
      "key rotate --dry-run",
      "user reset-factors ada@example.org --dry-run",
    ]) {
      const { status, err } = await agent(`admin ${line}`);
      expect(`${line}: ${status} ${err}`).toContain("works only on the machine of the control plane");
      expect(err).toContain(serving.url);
      expect(err).not.toContain("control plane data in");
    }
  });

  test("of a backup is refused also without a session there, and local where data is", async () => {
    const nobody = { XDG_CONFIG_HOME: join(directory, "nobody") };
    const refused = await agent("admin backup FILE --api-base https://control.example.org", "", nobody);
    expect(refused.err).toContain("works only on the machine of the control plane");
    await signIn();
    const file = join(directory, "backup.db");
    expect(await must(`admin backup ${file} --data-dir ${data}`)).toMatchObject({ file });
    // Who has signed in elsewhere might mean that control plane.
    await signIn();
    const create = "group create acme news";
    const named = await agent(`admin ${create} --local --data-dir ${data}`);
    expect([named.status, named.err]).toEqual([0, ""]);
    const rotated = await agent("admin key rotate", "", { AGENT_DATA_DIR: data });
    expect([rotated.status, rotated.err]).toEqual([0, expect.not.stringContaining("On the local data")]);
  });

  test("of a --dry-run is asked, and not changed", async () => {
    await signIn();
    expect(await must("admin group create acme dry --dry-run")).toEqual({
      plan: [{ step: "request", method: "POST", url: `${serving.url}/api/org/acme/groups/` }],
    });
    expect(JSON.stringify(await must("admin group list acme"))).not.toContain('"dry"');
    expect((await agent("admin group create nope dry --dry-run")).err).toContain("no organization nope");
    expect((await agent("admin node revoke acme nope --dry-run")).err).toContain("no node named nope");
  });
});

describe("the session", () => {
  test("is in a file of mode 0600 beside a list without secrets, and never in the output", async () => {
    await signIn();
    const path = join(profiles, "plane.session");
    expect(statSync(path).mode & 0o777).toBe(0o600);
    const { refresh, access } = v.parse(
      v.looseObject({ refresh: v.string(), access: v.string() }),
      JSON.parse(readFileSync(path, "utf8")),
    );
    const list = readFileSync(join(profiles, "profiles.json"), "utf8");
    for (const secret of [refresh, access, password]) expect(list).not.toContain(secret);
  });

  test("is renewed when its access token is over, also by commands side by side", async () => {
    await signIn();
    const path = join(profiles, "plane.session");
    const before = v.parse(v.looseObject({ refresh: v.string() }), JSON.parse(readFileSync(path, "utf8")));
    writeFileSync(path, JSON.stringify({ ...before, until: 0 }), { mode: 0o600 });
    const all = await Promise.all([1, 2, 3].map(() => agent("admin org list")));
    expect(all.map(({ status }) => status)).toEqual([0, 0, 0]);
    expect(readFileSync(path, "utf8")).not.toContain(before.refresh);
    expect((await agent("admin org list")).status).toBe(0);
  });

  test("that the server ended says how to sign in again", async () => {
    await signIn("bob@example.org");
    await runAdmin(data, ["user", "password", "bob@example.org", "--password-file", "-"], password);
    for (const end = Date.now() + 20_000; Date.now() < end; await Bun.sleep(50))
      if ((await agent("admin org list")).status !== 0) break;
    const over = await agent("admin org list");
    expect(over).toMatchObject({ status: 4, err: expect.stringContaining("agent login --profile plane") });
    // The profile knows address and user.
    await must("login --profile plane --password-file -", password);
    expect((await agent("admin org list")).status).toBe(0);
  });

  test("of an interrupted login never reaches the control plane that the profile had before", async () => {
    await signIn();
    const seen: string[] = [];
    using former = Bun.serve({
      port: 0,
      async fetch(request) {
        seen.push(`${request.url} ${request.headers.get("authorization")} ${await request.text()}`);
        return new Response(null, { status: 401 });
      },
    });
    const path = join(profiles, "profiles.json");
    const list = readFileSync(path, "utf8");
    writeFileSync(path, list.replace(serving.url, former.url.origin), { mode: 0o600 });
    const refused = await agent("admin org list");
    expect([refused.status, seen]).toEqual([4, []]);
    expect(refused.err).toContain("agent login --profile plane");
    writeFileSync(path, list, { mode: 0o600 });
    expect((await agent("admin org list")).status).toBe(0);
  });

  test("of an earlier version, which does not name its control plane, goes on", async () => {
    await signIn();
    const path = join(profiles, "plane.session");
    const { api_base: base, ...rest } = v.parse(
      v.looseObject({ api_base: v.string() }),
      JSON.parse(readFileSync(path, "utf8")),
    );
    expect(base).toBe(serving.url);
    writeFileSync(path, JSON.stringify(rest), { mode: 0o600 });
    expect((await agent("admin org list")).status).toBe(0);
  });

  test("ends with logout, here and at the control plane", async () => {
    await signIn();
    const session = readFileSync(join(profiles, "plane.session"), "utf8");
    await must("logout");
    expect(existsSync(join(profiles, "plane.session"))).toBe(false);
    const { refresh } = v.parse(v.looseObject({ refresh: v.string() }), JSON.parse(session));
    const again = await fetch(`${serving.url}/api/token/refresh/`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ refresh }),
    });
    expect(again.status).toBe(401);
    expect(await agent("logout")).toMatchObject({ status: 4, err: expect.stringContaining("not signed in") });
  });
});

test("the CA of --tls auto is trusted by its fingerprint, and a wrong scheme is named", async () => {
  const secure = await serveHere(join(directory, "secure"), { tls: "auto" });
  const user = ["user", "create", "ada@example.org", "--staff", "--password-file", "-"];
  await runAdmin(join(directory, "secure"), user, password);
  const words = "--email ada@example.org --profile secure --password-file -";
  const without = await agent(`login --api-base ${secure.url} ${words}`, password);
  expect(without).toMatchObject({ status: 6, err: expect.stringContaining("--ca-fingerprint") });
  await must(`login --api-base ${secure.url} --ca-fingerprint ${secure.caFingerprint} ${words}`, password);
  expect(await must("admin org list --profile secure")).toEqual({ organizations: [] });
  const plain = secure.url.replace("https:", "http:");
  const tls = serving.url.replace("http:", "https:");
  for (const [url, right] of [
    [plain, secure.url],
    [tls, serving.url],
  ]) {
    const { err } = await agent(`login --api-base ${url} ${words}`, password);
    expect(err).toContain(`try ${right}`);
    expect(err).not.toContain("fetch()");
  }
  await must("logout --profile secure");
  await secure.stop();
});

test("without a home there are no profiles: never in a directory that others can write", async () => {
  const homeless = await agentHere(["whoami", "--json"], { env: {} });
  expect(JSON.parse(homeless.out)).toMatchObject({ target: "local", profiles: [] });
  const words = `login --api-base ${serving.url} --email ada@example.org --password-file -`;
  const refused = await agentHere(words.split(" "), { env: {}, input: password });
  expect(refused).toMatchObject({ status: 78, err: expect.stringContaining("HOME is not set") });
});

// A control plane with a certificate of its own offers releases too: every command that downloads from it trusts the authority
// that the registration pinned, and for its origin alone. Over real TLS.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { allCommands } from "../../../src/cli/commands.ts";
import { installWintun } from "../../../src/node/enroll/install-wintun.ts";
import { readCredentials, writeCredentials } from "../../../src/node/files/organizations.ts";
import { realSystem } from "../../../src/base/system.ts";
import { agentHere } from "../../support/in-process.ts";
import { makeNodeWorld, type NodeWorld } from "../../support/node.ts";
import { runSync } from "../../support/debian.ts";

let world: NodeWorld;
let server: Bun.Server<undefined>;
let other: Bun.Server<undefined>;
/** The ports that were asked: a slow second request of a command may come late. */
const asked = new Set<string>();

beforeAll(async () => {
  world = await makeNodeWorld();
  const organization = await world.register();
  const at = (name: string) => join(world.root, "..", name);
  const openssl =
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost";
  runSync([
    ...openssl.split(" "),
    "-addext",
    "subjectAltName=DNS:localhost",
    "-keyout",
    at("key"),
    "-out",
    at("cert"),
  ]);
  const [cert, key] = await Promise.all(["cert", "key"].map((name) => Bun.file(at(name)).text()));
  const serve = () =>
    Bun.serve({
      port: 0,
      hostname: "localhost",
      tls: { cert, key },
      fetch: ({ url }) => {
        asked.add(new URL(url).port);
        return new Response("none", { status: 404 });
      },
    });
  [server, other] = [serve(), serve()];
  writeFileSync(join(organization.directory, "api-ca.crt"), cert ?? "");
  const credentials = readCredentials(organization.directory);
  writeCredentials(organization.directory, { ...credentials, api_base: `https://localhost:${server.port}` });
});
afterAll(async () => {
  await server.stop(true);
  await other.stop(true);
  await world[Symbol.asyncDispose]();
});

/** With the words that each needs; `install-tap` runs on Windows alone, so its implementation does. */
const downloads: Record<string, (base: string) => Promise<string>> = {
  version: (base) => agent("version", "--release-url", base),
  "self-update": (base) => agent("self-update", "--check", "--release-url", base),
  "overlay install": (base) => agent("overlay", "install", "--source", "release", "--release-url", base),
  "overlay update": (base) => agent("overlay", "update", "--check", "--release-url", base),
  "install-tap": (base) => {
    const places = {
      configRoot: world.root,
      overlayBinary: join(world.root, "../overlay"),
      stateDb: join(world.root, "../state.db"),
    };
    const request = { file: undefined, version: "1.11.1", releaseUrl: base };
    return installWintun(request, places, { ...realSystem(), arch: "x64" }).then(String, String);
  },
};

async function agent(...words: string[]): Promise<string> {
  const places = ["--config-root", world.root, "--overlay-binary", join(world.root, "../overlay")];
  const { err } = await agentHere([...words, ...places, "--state-db-path", join(world.root, "../state.db")]);
  return err;
}

test("these are all commands that download a release", async () => {
  const found = Object.entries(await allCommands()).map(async ([name, command]) =>
    "release-url" in (await command.args()) ? [name] : [],
  );
  expect((await Promise.all(found)).flat().sort()).toEqual(Object.keys(downloads).sort());
});

test.each(Object.entries(downloads))(
  "%s trusts the authority of the own control plane, and of no other address",
  async (_, download) => {
    const own = await download(`https://localhost:${server.port}/releases/`);
    expect(own).toContain("status 404");
    expect(await download(`https://localhost:${other.port}/releases/`)).not.toContain("status 404");
    expect([...asked]).toEqual([`${server.port}`]);
  },
);

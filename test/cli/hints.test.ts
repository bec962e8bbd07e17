// A command line of ours in a sentence works where the present one did: it gets the configuration root and the data in use.

import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { commands } from "../../src/cli/commands.ts";
import { elsewhere, placesOf } from "../../src/cli/hints.ts";
import { Values } from "../../src/cli/values.ts";
import { agentHere } from "../support/in-process.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const placed = (flags: Record<string, string>) =>
  placesOf(
    new Values(new Map(Object.entries(flags).map(([name, value]) => [name, [value]])), {
      readStdin: async () => "",
    }),
  );

test("each command gets the places that it reads, before what is left to fill in", () => {
  const place = placed({ "config-root": "/my root", "data-dir": "/data" });
  for (const [before, after] of [
    ["Run `agent doctor`.", "Run `agent doctor --config-root '/my root'`."],
    ["`agent register --force …`", "`agent register --force --config-root '/my root' …`"],
    ["`sudo agent sync-config`", "`sudo agent sync-config --config-root '/my root'`"],
    [
      "`agent admin node list acme`, `agent serve`",
      "`agent admin node list acme --data-dir /data`, `agent serve --data-dir /data`",
    ],
    ["`agent login --api-base https://a`", "`agent login --api-base https://a`"],
    ["`agent check-port 4242`", "`agent check-port 4242 --config-root '/my root'`"],
    [
      "`agent check-port --api-base https://a`",
      "`agent check-port --api-base https://a --config-root '/my root'`",
    ],
    ["`agent self-update`", "`agent self-update --config-root '/my root'`"],
    ["`agent admin node --help`", "`agent admin node --help`"],
    ["`agent status --config-root /x`", "`agent status --config-root /x`"],
    ["`systemctl status x`", "`systemctl status x`"],
  ] as const)
    expect(place(before)).toBe(after);
  expect(placed({})("Run `agent doctor`.")).toBe("Run `agent doctor`.");
});

test("a command whose hints lack the configuration root reads none, nor hands its settings on", () => {
  const named = Object.keys(commands).filter((name) => elsewhere.includes(name));
  const reading = named.filter((name) => {
    const file = join(import.meta.dir, `../../src/cli/${name}.ts`);
    return /\bconfigRoot\b|update\.|checkForUpdate/.test(existsSync(file) ? readFileSync(file, "utf8") : "");
  });
  expect(reading).toEqual([]);
});

test("hints of errors pass there, in text and in JSON", async () => {
  using directory = temporaryDirectory();
  const words = ["status", "acme", "--config-root", directory.path];
  const hint = `agent register --org-slug acme --config-root ${directory.path} …`;
  const refused = await agentHere(["sync-config", "--org-slug", "acme", "--config-root", directory.path]);
  expect(refused.err).toContain(hint);
  const json = await agentHere(["sync-config", "--org-slug", "acme", "--json", ...words.slice(2)]);
  expect(json.out).toContain(hint);
});

test("a damaged file is named with its key, and nothing of its content", async () => {
  using directory = temporaryDirectory();
  mkdirSync(join(directory.path, "acme"));
  const path = join(directory.path, "acme/node-config.json");
  writeFileSync(path, JSON.stringify({ schema: 1, org_slug: "acme", node_id: "SECRET" }));
  const { err } = await agentHere(["sync-config", "--org-slug", "acme", "--config-root", directory.path]);
  expect(err).toContain(`${path} is damaged: node_id: Invalid type`);
  expect(err).not.toContain("SECRET");
});

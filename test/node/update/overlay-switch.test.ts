// What an update of the engine does with the organizations of a machine when the new engine does not start.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError, messageOf } from "../../../src/base/errors.ts";
import { adaptConfigurations, switchEngines, type Member } from "../../../src/node/update/overlay-switch.ts";
import { realSystem } from "../../../src/base/system.ts";
import { identifyProcess } from "../../../src/platform/process-identity.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };

test("the former engine starts with what it needs, and counts as the one that runs here", async () => {
  const done: string[] = [];
  let isUndone = false;
  const member: Member = {
    slug: "acme",
    examine: async () => ({ process: identifyProcess(process.pid), program: undefined }),
    prepare: async (version) => void done.push(`prepare ${version}`),
    async restart() {
      done.push("restart");
      if (!isUndone) throw new AppError("engine_failed", "It ended");
    },
    plan: [],
    synchronize: async () => undefined,
  };
  const undo = async () => {
    done.push("undo");
    return (isUndone = true);
  };
  const versionOf = async (path: string) => (path === "/usr/bin/nebula" ? "1.12.0" : "1.13.104");
  const how = { isNew: true, former: "/usr/bin/nebula", versionOf, log: silent };
  const engine = { path: "/usr/local/bin/overlay", version: "1.13.104" };
  expect(await switchEngines([member], engine, undo, how).catch(messageOf)).toContain(
    "acme does not run with 1.13.104",
  );
  expect(done).toEqual(["prepare 1.13.104", "restart", "undo", "prepare 1.12.0", "restart"]);
});

test("a downgrade does not ask about an organization whose unit starts another engine", async () => {
  using directory = temporaryDirectory();
  const [path, other] = [join(directory.path, "overlay"), join(directory.path, "other")];
  // An engine that refuses each configuration.
  writeFileSync(path, "#!/bin/sh\necho 'unknown setting'\nexit 1\n", { mode: 0o755 });
  writeFileSync(other, "#!/bin/sh\n", { mode: 0o755 });
  const downgrade = (program: string) => {
    const member: Member = {
      slug: "acme",
      examine: async () => ({ process: identifyProcess(process.pid), program }),
      prepare: async () => undefined,
      restart: async () => undefined,
      plan: [],
      synchronize: async () => undefined,
    };
    const engine = { path, version: "1.10.3" };
    const deps = { log: silent, system: realSystem() };
    return adaptConfigurations([member], engine, directory.path, async () => true, deps).catch(messageOf);
  };
  expect(await downgrade(path)).toContain("acme has no configuration for 1.10.3");
  expect(await downgrade(other)).toBeUndefined();
});

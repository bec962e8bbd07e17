// For tests of a hostile control plane: a registered node, whose control plane sends what a test chooses.

import { afterEach, beforeEach } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import type { SyncResult } from "../../src/node/contact/applying/apply-next.ts";
import type { Organization } from "../../src/node/files/organizations.ts";
import { readYaml } from "../../src/node/files/config/read-yaml.ts";
import { DownloadAnswer } from "../../src/protocol/download.ts";
import { isMap, stringifyYaml, type YamlMap } from "../../src/base/yaml.ts";
import { makeControl, makeNodeWorld, syncNow, type NodeWorld } from "./node.ts";

const Files = v.looseObject({ "config.yml": v.string() });
const Registered = v.looseObject({ config: v.looseObject({ files: Files }) });

/** A new world for each test, registered with "acme". */
export function useSentConfig() {
  let world: NodeWorld;
  let organization: Organization;
  beforeEach(async () => {
    world = await makeNodeWorld();
    organization = await world.register();
  });
  afterEach(() => world[Symbol.asyncDispose]());
  const read = (name: string) => readFileSync(join(organization.directory, name), "utf8");
  const present = (): YamlMap => readYaml(read("config.yml"), "config.yml");
  return {
    get world() {
      return world;
    },
    get organization() {
      return organization;
    },
    set organization(again) {
      organization = again;
    },
    read,
    present,
    section: (name: string): YamlMap => {
      const found = present()[name];
      return isMap(found) ? found : {};
    },
    sync: (control = makeControl()): Promise<SyncResult> => syncNow(world, organization, control),
    /** From now on the control plane sends its configuration with this change. */
    tamper(change: (config: YamlMap) => YamlMap): void {
      const through = world.system.fetch;
      let count = 0;
      world.system.fetch = async (url, init) => {
        if (!/download_config|register/.test(url)) return through(url, init);
        const headers = Object.entries(init?.headers ?? {});
        const plain = Object.fromEntries(headers.filter(([name]) => name.toLowerCase() !== "if-none-match"));
        const answer = await through(url, { ...init, headers: plain });
        const text = await answer.text();
        if (!answer.ok) return new Response(text, { status: answer.status, headers: answer.headers });
        const body = v.parse(
          v.union([Registered, v.object({ ...DownloadAnswer.entries, files: Files })]),
          JSON.parse(text),
        );
        const { files } = v.is(Registered, body) ? body.config : body;
        files["config.yml"] = stringifyYaml(change(readYaml(files["config.yml"], "it")));
        const changed = new Headers(answer.headers);
        changed.set("ETag", `"${++count}"`);
        return new Response(JSON.stringify(body), { status: answer.status, headers: changed });
      };
    },
    /** Creates the files of another organization on this machine. */
    placeOther(configYml: string): void {
      const other = join(world.root, "other");
      Bun.spawnSync(["cp", "-rL", organization.directory, other]);
      writeFileSync(join(other, "config.yml"), configYml);
      writeFileSync(
        join(other, "node-config.json"),
        JSON.stringify({ ...organization.config, org_slug: "other" }),
      );
    },
  };
}

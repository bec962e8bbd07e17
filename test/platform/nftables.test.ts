// Our tables in the kernel's packet filter: written whole, read, removed, and nothing else is touched.

import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { putTable, readTable, tableRemoval, type TablePart } from "../../src/platform/nftables.ts";
import { applyChanges } from "../../src/platform/machine-changes.ts";
import { realSystem } from "../../src/base/system.ts";
import { asRoot } from "../support/engines.ts";
import { makeLan } from "../support/namespaces.ts";

const tableParts: readonly TablePart[] = ["relay", "routes", "exit"];

test("without nft it says so, and removing does nothing", async () => {
  const system = { platform: "darwin" as const, run: () => Promise.reject(new Error("not asked")) };
  expect(await putTable("routes", "acme", "", system)).toContain("no nft");
  expect(await readTable("routes", "acme", system)).toBeUndefined();
  expect(await tableRemoval("routes", "acme", system)).toEqual([]);
});

test("a failure of nft names it, whatever it says", async () => {
  for (const [stderr, told] of [
    ["Operation not permitted\n", "nft ended with status 1: Operation not permitted"],
    ["", "nft ended with status 1"],
  ] as const) {
    const run = () => Promise.resolve({ status: 1, stdout: "", stderr, timedOut: false });
    expect(await putTable("routes", "acme", "", { platform: "linux", run })).toBe(told);
  }
});

asRoot("in a network namespace", () => {
  test.skipIf(!existsSync("/usr/sbin/nft"))(
    "tables of each part and organization are replaced and removed alone",
    async () => {
      using lan = makeLan(["a"]);
      const [host] = lan.hosts;
      if (host === undefined) throw new Error("no host");
      const system = {
        platform: "linux" as const,
        run: (argv: readonly string[], options?: object) =>
          realSystem().run(
            ["/usr/bin/nsenter", `--net=/run/netns/${host.namespace}`, "--", ...argv],
            options,
          ),
      };
      const ruleset = () => host.run(["nft", "list", "ruleset"]);
      host.run(["nft", "add", "table", "ip", "theirs"]);
      const before = ruleset();
      const chain = (port: number) =>
        `chain c { type filter hook input priority 0; policy accept; udp dport ${port} drop; }`;
      for (const part of tableParts) {
        expect(await putTable(part, "acme", chain(1), system)).toBeUndefined();
        expect(await putTable(part, "acme", chain(2), system)).toBeUndefined();
        expect(await putTable(part, "acme-2", chain(3), system)).toBeUndefined();
        expect(await readTable(part, "acme", system)).toContain('"right": 2');
      }
      // A refused one leaves the present one as it is.
      expect(await putTable("routes", "acme", "chain c { no such word }", system)).toContain("syntax error");
      expect(ruleset().match(/dport 2 drop/g)?.length).toBe(tableParts.length);
      expect(ruleset()).not.toContain("dport 1 ");
      const remove = async (slug: string) => {
        for (const part of tableParts) await applyChanges(await tableRemoval(part, slug, system), system);
      };
      await remove("acme");
      expect(ruleset()).not.toContain("dport 2 drop");
      expect(ruleset().match(/dport 3 drop/g)?.length).toBe(tableParts.length);
      await remove("acme-2");
      expect(ruleset()).toBe(before);
    },
  );
});

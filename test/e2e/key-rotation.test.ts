// `admin key rotate` beside a running control plane: after a kill at any time, all secrets can still be decrypted.

import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { agent, buildAgent, cleanEnvironment, runAgent, startControlPlane } from "../support/agent.ts";
import { makeOrganization, registerNode } from "../support/overlay.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const kills = inFull ? 60 : 6;

test(
  `admin key rotate killed at ${kills} instants, and run to its end`,
  async () => {
    using directory = temporaryDirectory();
    const data = join(directory.path, "server");
    let plane = await startControlPlane(data);
    const acme = await makeOrganization(plane);
    const rotate = ["admin", "key", "rotate", "--data-dir", data, "--json"];
    const lines = () => readFileSync(join(data, "secret.key"), "utf8").trim().split("\n").length;
    let halfway = 0;
    for (let round = 0; round < kills; round++) {
      const child = Bun.spawn([agent, ...rotate], {
        env: cleanEnvironment(),
        stdin: "ignore",
        stdout: "ignore",
        stderr: "ignore",
      });
      await Bun.sleep(20 + Math.round((round * 240) / kills));
      // On a busy machine all the instants may be too early.
      if (round === kills - 1 && halfway === 0)
        while (child.exitCode === null && lines() < 2) await Bun.sleep(1);
      child.kill("SIGKILL");
      await child.exited;
      if (lines() === 2) halfway++;
      // Another process encrypted it, and the running server decrypts it.
      const slug = `org-${round}`;
      const each = await makeOrganization(plane, slug, `10.${round + 1}.0.0/16`);
      await registerNode(each, join(directory.path, slug), "node", await each.makeToken());
    }
    const { status, stdout } = await runAgent(rotate);
    expect(`${status} ${stdout}`).toStartWith('0 {"finished":true,');
    expect(lines()).toBe(1);
    expect(halfway).toBeGreaterThan(0);
    expect(plane.log()).not.toContain("which is missing");
    await plane.stop();

    const { key_id } = JSON.parse(stdout) as { key_id: string };
    const db = new Database(join(data, "control.db"), { readonly: true });
    const sealed = db
      .query<{ sealed: string }, []>(
        "SELECT private_key_sealed AS sealed FROM authorities UNION ALL SELECT order_key_sealed FROM organizations",
      )
      .all();
    db.close();
    expect(sealed).toHaveLength(3 * (kills + 1));
    expect(sealed.filter((row) => !row.sealed.startsWith(`s1.${key_id}.`))).toEqual([]);

    plane = await startControlPlane(data);
    // The signing key of access tokens is one of the secrets.
    await makeOrganization(plane, "after", "10.99.0.0/16");
    await registerNode({ ...acme, plane }, join(directory.path, "last"), "last", await acme.makeToken());
    await plane.stop();
  },
  inFull ? 600_000 : 120_000,
);

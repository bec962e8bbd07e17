// Data of a control plane for benches of the console: many nodes, and a person who owns the organization.

import { openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/base/system.ts";
import { agentJson } from "../support/agent.ts";
import { seed, slug, type Seeded } from "./seed.ts";

/** `owner`: the e-mail address of the person, whose password is `password`. The caller has built the executable. */
export async function seedWithOwner(
  dataDirectory: string,
  nodes: number,
): Promise<Seeded & { owner: string }> {
  const seeded = await seed({ dataDirectory }, nodes, { people: 1 });
  const [owner = ""] = seeded.people;
  await agentJson(["admin", "member", "create", slug, owner, "--role", "owner", "--data-dir", dataDirectory]);
  return { ...seeded, owner };
}

/** All nodes are online: seen now. */
export async function seeAllNodes(dataDirectory: string): Promise<void> {
  const { db } = await openData({ dataDirectory }, "server", realSystem());
  await db.write((tx) => tx.run("UPDATE sightings SET last_checkin_at = $1", [Date.now()]));
  await db.close();
}

// `agent unseal`: root ends the seal of an organization on this machine. Nothing that a control plane sends does.

import { join } from "node:path";
import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import { confirmWord } from "../ask.ts";
import type { Context, Implementation } from "../command.ts";
import { orgArg } from "../server/server-flags.ts";
import { switchFlag } from "../values.ts";

export const command: Implementation = {
  notes: `Ends the seal of an organization on this machine, for example when seal.json is damaged. From then on the control plane
decides again what this node trusts, whoever has it. If it still sends a seal, this node takes it, as a new node does: compare the hash that
\`${brand.executable} status\` shows with a signer's. Only root may do this; it asks first.`,
  args: { ...orgArg, yes: switchFlag("Ask nothing") },
  examples: [`${brand.executable} unseal acme`, `${brand.executable} unseal acme --dry-run`],
  run,
};

async function run(context: Context): Promise<number> {
  const { settings, system, words, values, output } = context;
  const { openOrganization, parseSlug } = await import("../../node/files/organizations.ts");
  const { sealFilesIn } = await import("../../node/files/granted/seal-files.ts");
  const slug = parseSlug(words[0] ?? "");
  const directory = join(settings.configRoot, slug);
  const files = sealFilesIn(directory);
  if (files.length === 0) {
    // Throws for an organization that is not here.
    openOrganization(settings.configRoot, slug);
    output.result({ org_slug: slug, unsealed: false }, `${slug} is not sealed on this machine.\n`);
    return 0;
  }
  if (settings.dryRun) {
    const { planRemoved } = await import("../../base/plan/plan-file.ts");
    output.plan(files.flatMap(planRemoved));
    return 0;
  }
  const { requireRoot } = await import("../../node/enroll/service-checks.ts");
  requireRoot(system, "end a seal");
  const texts = {
    why: "It ends the protection of this node",
    question: `Whoever has the control plane then decides whom this node trusts. Type ${slug} to end its seal: `,
  };
  if (!values.on("yes")) await confirmWord(slug, texts, system);
  const { removeSeal } = await import("../../node/files/held-seal.ts");
  const { withLock } = await import("../../node/files/lock.ts");
  await withLock(directory, `${brand.executable} unseal`, system, async () => removeSeal(directory));
  output.result({ org_slug: slug, unsealed: true }, `The seal of ${slug} is ended on this machine.\n`);
  output.say(
    `To apply what the control plane says now: ${brand.executable} sync-config --org-slug ${quoteWord(slug)}`,
  );
  return 0;
}

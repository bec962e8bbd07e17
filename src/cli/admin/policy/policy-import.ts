// `agent admin policy import`: a policy file made of a policy of Tailscale or Headscale.

import { organizationsApi } from "../../../api/organizations.ts";
import { brand } from "../../../brand.ts";
import type { Context, Implementation } from "../../command.ts";
import { read } from "../api.ts";
import { readPolicy } from "./policy.ts";
import { valueFlag, wordArg } from "../../values.ts";

export const importing: Implementation = {
  args: {
    FILE: wordArg("Their policy (HuJSON or JSON), - for standard input"),
    from: valueFlag("tailscale|headscale", "Whose policy it is", { required: true }),
    "org-slug": valueFlag(
      "ORG",
      "The organization that it is for. Networks as sources are imported if they do not overlap its overlay; without this, none is",
    ),
  },
  notes: "Changes nothing. Each line that has no equal is named on standard error, with the reason.",
  examples: [
    `${brand.executable} admin policy import --from headscale --org-slug acme acl.hujson > policy.yaml`,
  ],
  async run(context) {
    context.values.choice("from", ["tailscale", "headscale"]);
    const [file = "-"] = context.words;
    const text = await readPolicy(file, context);
    const slug = context.values.text("org-slug");
    const overlay = slug === undefined ? undefined : await networksOf(context, slug);
    const { importPolicy } = await import("../../../server/policy-files/import-policy.ts");
    const { inSlices } = await import("../../../server/http/heavy-work.ts");
    const imported = await inSlices(importPolicy(text, overlay));
    for (const { line, what, reason } of imported.notes)
      context.output.say(`Line ${line}: ${what}: ${reason}.`);
    context.output.file(imported, imported.policy);
    const next = `${brand.executable} admin policy plan ORG FILE --prune`;
    context.output.say(
      `Next: put nodes into the groups (\`members\`, or registration tokens), then \`${next}\`. Each rule that reaches a node ` +
        "here opens the networks behind it, too: keep routers out of these groups.",
    );
  },
};

async function networksOf(context: Context, slug: string): Promise<string[]> {
  const { network, network6 } = await read(context, (api) => api.call(organizationsApi.retrieve, { slug }));
  return [network, network6].flatMap((each) => each ?? []);
}

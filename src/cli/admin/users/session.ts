// `agent admin session …`: the browsers and command lines in which a user is signed in: the own ones, or those of a member.

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { Context, Implementation } from "../../command.ts";
import type { Args } from "../../values.ts";
import { Session } from "../answers.ts";
import { inOrg, Nothing, read, writeAs, type Api } from "../api.ts";
import { memberByEmail } from "../lookup.ts";
import { targetFlags } from "../target.ts";

const notes = `Without --user, sessions of the user who is signed in with \`${brand.executable} login\`. With --org and --user, those of a member of an
organization, for its administrators: they end everywhere, because a session is not of one organization. NODES are those
whose machine proved that a command line is signed in on it; when one of them is revoked, that session ends.`;

const memberFlags: Args = {
  org: { type: "string", valueHint: "ORG", description: "With --user: an organization of that user" },
  user: { type: "string", valueHint: "EMAIL", description: "A member of the organization (default: you)" },
};

type Whose = { path(api: Api): Promise<string>; email: string | undefined };

function whose({ values }: Context): Whose {
  const [slug, email] = [values.text("org"), values.text("user")];
  if (slug === undefined && email === undefined)
    return { path: async () => "/api/user/sessions/", email: undefined };
  if (slug === undefined || email === undefined)
    throw new AppError("usage", "Give --org and --user together, or neither for your own sessions");
  const path = async (api: Api) =>
    inOrg(slug, `members/${(await memberByEmail(api, slug, email)).id}/sessions/`);
  return { path, email };
}

export const list: Implementation = {
  notes,
  args: { ...memberFlags, ...targetFlags },
  examples: [
    `${brand.executable} admin session list`,
    `${brand.executable} admin session list --org acme --user ada@example.org`,
  ],
  async run(context) {
    const { path, email } = whose(context);
    const sessions = await read(context, async (api) => api.list(await path(api), Session));
    context.output.list(
      { sessions },
      {
        columns: ["ID", "KIND", "DEVICE", "ADDRESS", "SINCE", "LAST USE", "NODES"],
        rows: sessions.map((each) => [
          each.id,
          // Older control planes list browsers only.
          each.kind === "command_line" ? "command line" : "browser",
          each.device,
          each.address,
          each.created_at,
          each.last_used_at,
          (each.nodes ?? []).map(({ org_slug, name }) => `${name} (${org_slug})`).join(", "),
        ]),
        none: `${email ?? "You"} ${email === undefined ? "are" : "is"} signed in nowhere.`,
      },
    );
  },
};

export const revoke: Implementation = {
  notes,
  args: {
    ID: {
      type: "positional",
      required: false,
      description: `Number from \`${brand.executable} admin session list\``,
    },
    all: { type: "boolean", description: "With --user: sign the user out everywhere" },
    ...memberFlags,
    ...targetFlags,
  },
  examples: [
    `${brand.executable} admin session revoke 7`,
    `${brand.executable} admin session revoke --all --org acme --user ada@example.org`,
  ],
  async run(context) {
    const [id] = context.words;
    const { path, email } = whose(context);
    const isAll = context.values.on("all");
    if ((id === undefined) !== isAll || (isAll && email === undefined))
      throw new AppError("usage", "Give the ID of a session, or --all with --org and --user");
    const what = isAll ? `all sessions of ${email ?? ""}` : `session ${id}`;
    const gone = await writeAs(context, Nothing, async (api) => ({
      method: "DELETE",
      path: `${await path(api)}${id === undefined ? "" : `${encodeURIComponent(id)}/`}`,
      effect: `end ${what}`,
    }));
    if (gone === undefined) return;
    if (id === undefined)
      return context.output.result({ user: email, all: true }, `All sessions of ${email ?? ""} have ended\n`);
    context.output.result({ id: Number(id) }, `Session ${id} has ended\n`);
  },
};

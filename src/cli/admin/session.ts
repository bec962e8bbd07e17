// `agent admin session …`: the browsers in which the signed-in user is signed in.

import { brand } from "../../brand.ts";
import type { Implementation } from "../command.ts";
import { BrowserSession } from "./answers.ts";
import { Nothing, read, write } from "./api.ts";
import { targetFlags } from "./target.ts";

const notes = `Sessions belong to the user who is signed in with \`${brand.executable} login\`. To end all sessions of another user, disable the
user or set a new password.`;

export const list: Implementation = {
  notes,
  args: targetFlags,
  examples: [`${brand.executable} admin session list`],
  async run(context) {
    const sessions = await read(context, (api) => api.list("/api/user/sessions/", BrowserSession));
    context.output.list(
      { sessions },
      {
        columns: ["ID", "BROWSER", "ADDRESS", "SINCE", "LAST USE"],
        rows: sessions.map((each) => [
          each.id,
          each.device,
          each.address,
          each.created_at,
          each.last_used_at,
        ]),
        none: "You are signed in with no browser.",
      },
    );
  },
};

export const revoke: Implementation = {
  notes,
  args: {
    ID: { type: "positional", description: `Number from \`${brand.executable} admin session list\`` },
    ...targetFlags,
  },
  examples: [`${brand.executable} admin session revoke 7`],
  async run(context) {
    const [id = ""] = context.words;
    const path = `/api/user/sessions/${encodeURIComponent(id)}/`;
    if ((await write(context, Nothing, () => ({ method: "DELETE", path }))) === undefined) return;
    context.output.result({ id: Number(id) }, `Session ${id} has ended\n`);
  },
};

// The form that begins an update in rings.

import { useState } from "preact/hooks";
import { apiPath, type GivenOf } from "../../api/endpoint.ts";
import { groupsApi } from "../../api/groups.ts";
import { rolloutsApi, usualWatchS } from "../../api/rollouts.ts";
import { hoursFrom } from "../../protocol/updates/hours.ts";
import { call } from "../contact/api.ts";
import { me, currentSlug } from "../contact/me.ts";
import { refresh, useList } from "../contact/resource.ts";
import { go, pathOf } from "../frame/router.ts";
import { partsOf, sentencesOf } from "../words/field-parts.ts";
import { FormDialog } from "../ui/dialog.tsx";
import { Listed, Text, useAction } from "../ui/form.tsx";

const usualMinutes = `${usualWatchS / 60}`;
const empty = { agent: "", engine: "", groups: "", hours: "" };

export function Begin({ path, close }: { path: string; close(): void }) {
  const slug = currentSlug.value ?? "";
  const { data: groups = [] } = useList(apiPath(groupsApi.list, { slug }, { page_size: "1000" }));
  const [typed, setTyped] = useState(empty);
  const [watch, setWatch] = useState(usualMinutes);
  const put = (field: keyof typeof empty) => (text: string) => setTyped({ ...typed, [field]: text });
  const hours = partsOf(typed.hours, " ");
  const wrong = hours.find((each) => hoursFrom(each) === undefined);
  const [agent, engine] = [typed.agent.trim(), typed.engine.trim()];
  const body = {
    ...(agent === "" ? {} : { agent }),
    ...(engine === "" ? {} : { engine }),
    groups: partsOf(typed.groups),
    hours: hours.flatMap((each) => hoursFrom(each) ?? []) as GivenOf<typeof rolloutsApi.create>["hours"],
    watch_s: Number(watch) * 60,
  };
  const form = useAction(async () => {
    const { id } = await call(rolloutsApi.create, { slug }, body);
    await refresh(path);
    close();
    go(pathOf(slug, "rollouts", id));
  });
  const fields = form.error?.fields;
  return (
    <FormDialog
      title="Update nodes in rings"
      action="Begin"
      hasUnsaved={Object.values(typed).some((text) => text !== "")}
      form={form}
      close={close}
      shown={Object.keys(empty)}
      disabled={agent + engine === "" || wrong !== undefined}
      terminal={{
        command: [
          "rollout",
          "create",
          slug,
          ...(agent === "" ? [] : ["--agent", agent]),
          ...(engine === "" ? [] : ["--engine", engine]),
          ...body.groups.flatMap((group) => ["--group", group]),
          ...hours.flatMap((each) => ["--hours", each]),
          ...(watch === usualMinutes ? [] : ["--watch", `${watch}m`]),
        ],
        call: ["POST", path, body],
      }}
    >
      <Text
        label="Version of the agent"
        help="A signed release. Empty: as it is."
        errors={fields?.["agent"]}
        value={typed.agent}
        set={put("agent")}
        control={{ maxlength: 20, placeholder: me.value?.server_version, autocomplete: "off" }}
      />
      <Text
        label="Version of the engine"
        help="Never a lower one. Empty: as it is."
        errors={fields?.["engine"]}
        value={typed.engine}
        set={put("engine")}
        control={{ maxlength: 20, placeholder: "1.12.0", autocomplete: "off" }}
      />
      <Listed
        label="Groups"
        help="Separated by commas. Empty: all nodes."
        errors={sentencesOf(fields, "groups", body.groups)}
        value={typed.groups}
        set={put("groups")}
        offered={groups.map(({ name }) => name)}
      />
      <Text
        label="Hours"
        help="In each node's own time, separated by blanks: 22-5, or sat,sun:0-24. Empty: always."
        errors={
          wrong === undefined
            ? sentencesOf(fields, "hours", hours)
            : [`"${wrong}" is not hours such as 22-5 or sat,sun:0-24.`]
        }
        value={typed.hours}
        set={put("hours")}
        control={{ maxlength: 200, placeholder: "22-5", autocomplete: "off" }}
      />
      <Text
        label="Minutes that a ring is watched"
        errors={fields?.["watch_s"]}
        value={watch}
        set={setWatch}
        control={{ type: "number", min: 1, max: 1440, required: true }}
      />
    </FormDialog>
  );
}

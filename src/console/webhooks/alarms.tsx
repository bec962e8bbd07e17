// Alarms in one place: what is wrong, from when on that is told, and to whom.

import { apiPath } from "../../api/endpoint.ts";
import { groupsApi } from "../../api/groups.ts";
import { organizationSettings, organizationsApi, type Organization } from "../../api/organizations.ts";
import { alarmsApi, type Alarm } from "../../api/webhooks/alarms.ts";
import type { ListedWebhook as Webhook } from "../../api/webhooks/webhooks.ts";
import { flagWords } from "../../protocol/settings.ts";
import { useState } from "preact/hooks";
import { call, request } from "../contact/api.ts";
import { currentSlug, mayAdminister } from "../contact/me.ts";
import { useList, useResource } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Button, Words } from "../ui/button.tsx";
import { FormDialog } from "../ui/dialog.tsx";
import { Choice, FormFailure, Listed, Text, useAction, useSending } from "../ui/form.tsx";
import { TextWithCommands } from "../ui/parts.tsx";
import { actionsColumn, List, stateColumn, textColumn } from "../ui/lists/list.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";
import { Page } from "../ui/page.tsx";
import { tell } from "../ui/toast.tsx";
import { partsOf, sentencesOf } from "../words/field-parts.ts";
import { isRed } from "../needs/need-kinds.ts";
import { useCut } from "../needs/use-needs.ts";
import {
  groupWords,
  meaningOf,
  ofGroup,
  rulesOf,
  valueWords,
  withValue,
  worstFirst,
  type Rule,
} from "./alarm-rules.ts";
import { EditWebhook, webhooksPath } from "./webhook-forms.tsx";
import { eventsOf, WebhookById } from "./webhook-page.tsx";

export function Alarms({ rest: [id] }: { rest: readonly string[] }) {
  // Below this page stand the pages of webhooks, by their ids.
  return id === undefined ? <AllAlarms /> : <WebhookById key={id} id={id} />;
}

function AllAlarms() {
  const slug = currentSlug.value ?? "";
  const path = apiPath(alarmsApi.list, { slug });
  const { data, error } = useResource(path);
  // How many paths have no other way than a relay that is away: with none, such an alarm is not red.
  const cut = useCut(slug);
  const organization = useResource(apiPath(organizationsApi.retrieve, { slug })).data;
  return (
    <Page title="Alarms" terminal={{ command: ["alarm", "list", slug], call: ["GET", path] }}>
      <List
        label="Alarms"
        title="What is wrong"
        path={path}
        read={{ data: data && worstFirst(data, cut), error }}
        columns={[
          stateColumn(1, ({ ended_at, kind }: Alarm) =>
            ended_at === null ? [isRed(kind, cut) ? "attention" : "limited", "open"] : ["online", "over"],
          ),
          textColumn("alarm", "Alarm", 3, ({ title }: Alarm) => title),
          {
            ...textColumn<Alarm>("alarm-text", "What it means", 4, meaningOf),
            cell: (alarm) => (
              <span title={meaningOf(alarm)}>
                <TextWithCommands text={meaningOf(alarm)} />
              </span>
            ),
          },
          timeColumn("since", "Since", ({ since }: Alarm) => since),
          timeColumn("over", "Over", ({ ended_at }: Alarm) => ended_at, { never: () => "" }),
        ]}
        keyOf={({ id }: Alarm) => id}
        empty="Nothing."
        height={72}
      />
      {mayAdminister.value ? <Receivers slug={slug} /> : null}
      {organization === undefined ? null : <Rules organization={organization} />}
    </Page>
  );
}

function Receivers({ slug }: { slug: string }) {
  const [isMaking, setMaking] = useState(false);
  const test = useAction(async () => {
    const { webhooks } = await call(alarmsApi.test, { slug }, {});
    tell(`A test alarm goes to ${webhooks} of the webhooks.`);
  });
  return (
    <>
      <FormFailure error={test.error} />
      <List
        label="Webhooks"
        title="Receivers"
        part="to"
        path={webhooksPath(slug)}
        command={["webhook", "list", slug]}
        columns={[
          textColumn("url", "URL", 4, ({ url }: Webhook) => url),
          stateColumn(1, ({ failing }: Webhook) => (failing ? ["attention", "failing"] : ["online", "ok"])),
          textColumn("events", "Events", 3, ({ events }: Webhook) => eventsOf(events)),
        ]}
        keyOf={({ id }: Webhook) => id}
        linkOf={({ id }: Webhook) => pathOf(slug, "webhooks", id)}
        empty="None yet. A webhook sends alarms by mail, to a chat, or to a program."
      >
        <Button isSmall={true} disabled={test.isRunning} onClick={test.run}>
          <Words first="Test" rest="alarms" />
        </Button>
        <Button isSmall={true} kind="primary" icon="plus" onClick={() => setMaking(true)}>
          <Words first="Create" rest="a webhook" />
        </Button>
      </List>
      {isMaking ? <EditWebhook close={() => setMaking(false)} /> : null}
    </>
  );
}

function Rules({ organization }: { organization: Organization }) {
  const { slug, alarm_rules: own, notify_away_minutes: away } = organization;
  /** The rule that is changed; `new`: one for a group. */
  const [asked, setAsked] = useState<Rule | "new">();
  const mayChange = mayAdminister.value;
  return (
    <>
      <List
        label="Rules"
        title="Rules"
        part="rules"
        path={apiPath(organizationsApi.retrieve, { slug })}
        command={["org", "show", slug]}
        read={{ data: rulesOf(own, away), error: undefined }}
        columns={[
          textColumn("words", "Alarm when", 7, ({ words }: Rule) => words),
          textColumn("value", "Value", 2, valueWords),
          ...(mayChange
            ? [
                actionsColumn(1, (rule: Rule) => (
                  <Button
                    isSmall={true}
                    kind="ghost"
                    label={`Change: ${rule.words}`}
                    onClick={() => setAsked(rule)}
                  >
                    Change
                  </Button>
                )),
              ]
            : []),
        ]}
        keyOf={({ place }: Rule) => place}
        empty=""
      >
        {mayChange ? (
          <Button isSmall={true} icon="plus" onClick={() => setAsked("new")}>
            <Words first="Add" rest="a rule for a group" />
          </Button>
        ) : null}
      </List>
      {asked === undefined ? null : (
        <ChangeRule
          {...{ slug, own }}
          rule={asked === "new" ? undefined : asked}
          close={() => setAsked(undefined)}
        />
      )}
    </>
  );
}

/** `own`: the changed rules of the organization, as `node=30`. `rule` undefined: a new one, for groups. */
type ChangeProps = { slug: string; own: readonly string[]; rule: Rule | undefined; close(): void };

function ChangeRule({ slug, own, rule, close }: ChangeProps) {
  const { data: known = [] } = useList(
    rule === undefined ? apiPath(groupsApi.list, { slug }, { page_size: "1000" }) : "",
  );
  const [groups, setGroups] = useState("");
  const [value, setValue] = useState(rule?.value ?? "");
  const names = rule === undefined ? partsOf(groups).map((group) => ofGroup + group) : [rule.name];
  // The usual value is not stored: "" removes what the organization chose.
  const body = { alarm_rules: withValue(own, names, value === rule?.usual ? "" : value) };
  // All that is shown of the organization: its paths begin with this one.
  const shown = apiPath(organizationsApi.retrieve, { slug });
  const form = useSending(request(organizationsApi.update, { slug }, body), shown, close);
  const { unit = "minutes", usual = "" } = rule ?? {};
  const props = {
    label: "Value",
    errors: sentencesOf(form.error?.fields, "alarm_rules", body.alarm_rules),
    value,
    set: setValue,
  };
  return (
    <FormDialog
      title={rule?.words ?? groupWords("a group")}
      action="Save"
      hasUnsaved={value !== (rule?.value ?? "") || groups !== ""}
      form={form}
      close={close}
      shown={["alarm_rules"]}
      disabled={names.length === 0 || (rule === undefined && value === "")}
      command={["org", "update", slug, ...flagWords(organizationSettings, body)]}
    >
      {rule === undefined ? (
        <Listed
          label="Groups"
          help="Separated by commas. Such a rule stands above the others for nodes."
          value={groups}
          set={setGroups}
          offered={known.map(({ name }) => name)}
        />
      ) : null}
      {unit === "switch" ? (
        <Choice
          {...props}
          choices={[
            ["on", "on"],
            ["off", "off"],
          ]}
        />
      ) : (
        <Text
          {...props}
          help={`In ${unit}, or off. Empty: ${usual === "" ? "no such rule" : `as usual, ${usual}`}.`}
          control={{ maxlength: 5, autocomplete: "off" }}
        />
      )}
    </FormDialog>
  );
}

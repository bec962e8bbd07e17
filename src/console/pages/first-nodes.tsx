// What Overview shows of an organization without a node.

import type { Attention } from "../../api/paths/attention.ts";
import { isAdmin, organization } from "../contact/me.ts";
import { pathOf } from "../frame/router.ts";
import { NeedsYou } from "../needs/needs-panel.tsx";
import { needRows } from "../needs/need-rows.ts";
import type { Needs } from "../needs/use-needs.ts";
import { Button } from "../ui/button.tsx";
import { Icon } from "../ui/icon.tsx";
import { Panel, Step } from "../ui/page.tsx";
import { now } from "../words/times.ts";

type Props = { slug: string; needs: Needs; attention: Attention };

/** An organization without a node: the three steps to a network, and what can be done meanwhile. */
export function FirstNodes({ slug, needs, attention }: Props) {
  const shown = organization.value;
  const rows = needRows(slug, { ...needs, attention }, now.value);
  const meanwhile = [
    ["people", "Invite somebody", pathOf(slug, "people")],
    ["passkey", "Add a passkey", pathOf("-", "account")],
    ["access", "Look at the rules", pathOf(slug, "access")],
  ] as const;
  return (
    <div class="start">
      <div>
        <div class="hello">
          <h2>Your network has no node yet</h2>
          <p class="quiet mt8">
            You need three nodes: one that the others can reach, and two that talk. It takes about five
            minutes.
          </p>
        </div>
        <ol class="steps mt12">
          <Step at={1} title="A lighthouse: a machine with a public address" state="here">
            <p class="quiet">The others find each other through it. It needs an open UDP port.</p>
            {isAdmin(shown) ? (
              <p class="group mt8">
                <Button kind="primary" icon="plus" href={`${pathOf(slug, "nodes", "add")}?kind=lighthouse`}>
                  Add a lighthouse
                </Button>
              </p>
            ) : null}
          </Step>
          <Step at={2} title="A second node" state="later">
            <p class="quiet">The same way, with a key of its own. No open port is needed.</p>
          </Step>
          <Step at={3} title="Let them talk" state="later">
            <p class="quiet">
              Two rules are there from the start: all may send, all answer pings. You add what else may be
              reached.
            </p>
          </Step>
        </ol>
        {rows.length === 0 ? null : (
          <NeedsYou slug={slug} rows={rows} count={needs.count} isUrgent={needs.isUrgent} isEmpty={true} />
        )}
      </div>
      <aside class="stackd">
        <Panel title="Your network" hasRoom={true}>
          <dl class="facts">
            <dt>Name</dt>
            <dd>
              <bdi>{shown?.name}</bdi>
            </dd>
            <dt>Names end in</dt>
            <dd>.{slug}.internal</dd>
            <dt>Addresses</dt>
            <dd class="mono">{shown?.network}</dd>
          </dl>
        </Panel>
        <Panel title="Meanwhile">
          <ul class="lines recent">
            {meanwhile.map(([icon, words, href]) => (
              <li key={words}>
                <Icon name={icon} />
                <a class="name" href={href}>
                  {words}
                </a>
              </li>
            ))}
          </ul>
        </Panel>
      </aside>
    </div>
  );
}

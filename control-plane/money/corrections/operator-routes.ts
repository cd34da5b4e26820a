// The operator's routes for corrections.
import { z } from 'zod';
import { isoTime } from '../../../shared/clock.ts';
import { dollarText } from '../../../shared/money.ts';
import { AnyFields, Dollars, type Fields, operator, readUcents } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Corrections } from './corrections.ts';
import type { Correction } from './store.ts';

export interface CorrectionRouteDeps {
  corrections: Corrections;
  /** @throws ServiceError `not_found` */
  assertOrg(orgId: string): Promise<void>;
}

const BASE = '/admin/corrections';
const named = { reference: z.string().min(1).max(255), reason: z.string().min(1).max(1_000) };
const responses = { 200: { description: 'The correction', schema: AnyFields } };

export function correctionRoutes({ corrections, assertOrg }: CorrectionRouteDeps): Route[] {
  const shared = { ...operator, method: 'POST', responses, errors: ['not_found', 'conflict'] } as const;
  return [
    route({
      ...shared,
      path: `${BASE}/refunds`,
      operationId: 'adminRefund',
      summary: 'Refund a rental, a receipt or a video. A second refund with the same reference has no effect',
      body: z.strictObject({
        subject_id: z.string().min(1).max(255),
        amount: Dollars.optional(),
        from_platform: z.boolean().default(false),
        ...named,
      }),
      handler: async ({ body }) => {
        const { subject_id: subjectId, amount, from_platform: fromPlatform } = body;
        const amountUcents = amount === undefined ? null : readUcents(amount);
        return reply(await corrections.refund({ ...body, subjectId, amountUcents, fromPlatform }));
      },
    }),
    route({
      ...shared,
      path: `${BASE}/credits`,
      operationId: 'adminGrantCredit',
      summary:
        'Credit an organisation from the revenue of the platform. A second credit with the same reference has no effect',
      body: z.strictObject({ org_id: z.string(), amount: Dollars, ...named }),
      handler: async ({ body }) => {
        await assertOrg(body.org_id);
        return reply(await corrections.credit({ ...body, orgId: body.org_id, amountUcents: readUcents(body.amount) }));
      },
    }),
    route({
      ...shared,
      path: `${BASE}/adjustments`,
      operationId: 'adminAdjustBalance',
      summary: 'Correct a balance up or down. A second correction with the same reference has no effect',
      body: z.strictObject({
        org_id: z.string(),
        direction: z.enum(['up', 'down']),
        amount: Dollars,
        allow_debt: z.boolean().default(false),
        ...named,
      }),
      handler: async ({ body }) => {
        await assertOrg(body.org_id);
        const about = { orgId: body.org_id, amountUcents: readUcents(body.amount), allowDebt: body.allow_debt };
        return reply(await corrections.adjust({ ...body, ...about }));
      },
    }),
  ];
}

function reply(row: Correction): { status: number; body: Fields } {
  const body = {
    id: row.id,
    kind: row.kind,
    org_id: row.org_id,
    subject_id: row.subject_id,
    amount: dollarText(row.amount_ucents),
    from_suppliers: dollarText(row.supplier_ucents),
    bad_debt: dollarText(row.bad_debt_ucents),
    reference: row.reference,
    reason: row.reason,
    created_at: isoTime(row.created_ms),
  };
  return { status: 200, body };
}

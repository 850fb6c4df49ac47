/**
 * Lock clauses for a SELECT that joins the table `e` with a JSON table. MySQL rejects a plain FOR UPDATE there ("appears in
 * multiple locking clauses", 9.7), and MariaDB knows no OF. Each server ignores the comments of the other one.
 */
export const FOR_UPDATE = 'for update /*!80017 of e */'
export const FOR_SHARE = '/*!80017 for share of e */ /*M!100203 lock in share mode */'

-- schema: everything that migrations have made in the schema, in a form that does not depend on the server's version.
-- out: parts, in order
WITH
mine AS MATERIALIZED (
  SELECT c.oid, c.relname, c.relkind, c.relispartition, c.relpartbound, c.reloptions
  FROM pg_class AS c
  WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
),
part (rank, name, text) AS (
  SELECT 1, s.sequencename::text, format(
    'CREATE SEQUENCE %I AS %s MINVALUE %s START %s', s.sequencename, s.data_type, s.min_value, s.start_value
  )
  FROM pg_sequences AS s
  WHERE s.schemaname = current_schema() AND NOT EXISTS (
    SELECT FROM pg_depend AS d
    WHERE d.objid = format('%I', s.sequencename)::regclass AND d.deptype = 'i' AND d.classid = 'pg_class'::regclass
  )
  UNION ALL
  SELECT 2, m.relname::text, format('CREATE TABLE %I (', m.relname) || E'\n  ' || concat_ws(E',\n  ',
    (
      SELECT string_agg(concat_ws(' ', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
        CASE WHEN a.attcollation <> t.typcollation THEN 'COLLATE ' || a.attcollation::regcollation END,
        CASE WHEN a.attnotnull THEN 'NOT NULL' END,
        CASE WHEN a.attidentity = 'a' THEN 'GENERATED ALWAYS AS IDENTITY' END,
        'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid)), E',\n  ' ORDER BY a.attnum)
      FROM pg_attribute AS a
      JOIN pg_type AS t ON t.oid = a.atttypid
      LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      WHERE a.attrelid = m.oid AND a.attnum > 0 AND NOT a.attisdropped
    ),
    (
      SELECT string_agg(pg_get_constraintdef(k.oid), E',\n  ' ORDER BY k.contype DESC, k.conname)
      FROM pg_constraint AS k WHERE k.conrelid = m.oid AND k.contype IN ('p', 'u', 'c')
    )
  ) || E'\n)' || coalesce(' PARTITION BY ' || pg_get_partkeydef(m.oid), '')
    || coalesce(' WITH (' || array_to_string(m.reloptions, ', ') || ')', '')
  FROM mine AS m
  WHERE m.relkind IN ('r', 'p') AND NOT m.relispartition
  UNION ALL
  SELECT 3, m.relname::text, format('CREATE TABLE %I PARTITION OF %I ', m.relname, p.relname)
    || pg_get_expr(m.relpartbound, m.oid) || coalesce(' WITH (' || array_to_string(m.reloptions, ', ') || ')', '')
  FROM mine AS m
  JOIN pg_inherits AS i ON i.inhrelid = m.oid
  JOIN mine AS p ON p.oid = i.inhparent
  WHERE m.relkind = 'r'
  UNION ALL
  SELECT 4, m.relname::text, replace(pg_get_indexdef(m.oid), quote_ident(current_schema()) || '.', '')
  FROM mine AS m
  WHERE m.relkind = 'i' AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conindid = m.oid)
  UNION ALL
  SELECT 5, m.relname::text, format('-- CREATE VIEW %I (', m.relname) || (
      SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
      FROM pg_attribute AS a WHERE a.attrelid = m.oid AND a.attnum > 0
    ) || ')'
  FROM mine AS m
  WHERE m.relkind = 'v'
  UNION ALL
  SELECT 6, p.proname::text, format(
    'CREATE FUNCTION %I(%s) RETURNS %s', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)
  ) || E'\n' || concat_ws(' ', 'LANGUAGE ' || l.lanname,
      CASE p.provolatile WHEN 's' THEN 'STABLE' WHEN 'i' THEN 'IMMUTABLE' ELSE 'VOLATILE' END,
      CASE WHEN p.prosecdef THEN 'SECURITY DEFINER' END,
      (SELECT string_agg('SET ' || c, ' ' ORDER BY c) FROM unnest(p.proconfig) AS c),
      CASE WHEN p.proacl IS NOT NULL THEN '/* not for PUBLIC */' END
    ) || format(' /* a body of %s lines, %s */', 1 + length(p.prosrc) - length(replace(p.prosrc, E'\n', '')), md5(p.prosrc))
  FROM pg_proc AS p
  JOIN pg_language AS l ON l.oid = p.prolang
  WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
)
SELECT text FROM part ORDER BY rank, name COLLATE "C"

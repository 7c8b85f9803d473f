-- schema: orders, in a schema of their own, and a trigger that has each of them shipped.
CREATE SCHEMA IF NOT EXISTS windlass_example_orders;
SET search_path TO windlass_example_orders;
CREATE TABLE IF NOT EXISTS orders (id int GENERATED ALWAYS AS IDENTITY, item text);
CREATE OR REPLACE FUNCTION ship_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM windlass.enqueue('order.ship', to_jsonb(NEW), queue => 'shipping');
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER ship AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION ship_order()
